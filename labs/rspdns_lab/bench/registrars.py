"""How many servers three registrars bear with the timers that are shipped.

Real are the registrars; simulated are the pool elements, ten to an association. Every registrar asks its
elements at the shipped interval, so what is measured is the processor time of a keep-alive, whether the
interval is kept, whether a live element is lost, and how long a silent one stays.
"""

import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import psutil
from registrar_config import KEEP_ALIVE, TIMERS_MS, size

from rspdns_lab.bench.kept_alive import REREGISTRATION_MS
from rspdns_lab.bench.part import Part, Run
from rspdns_lab.bench.site import BenchSite, site
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.net.network import Host, processes_in
from rspdns_lab.net.processes import processor_s
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.page import Columns, Section, table_of
from rspdns_lab.report.plots import BLUE, GREEN, GREY, Curve, Curves, Dots

REGISTRARS: Final = ("10.79.0.11", "10.79.0.12", "10.79.0.13")
ELEMENTS: Final = "10.79.0.31"
SIZES: Final = (100, 300, 1000, 3000, 5000, 10_000)
QUICK_SIZES: Final = (100,)
PER_ASSOCIATION: Final = 10
PER_S: Final = 1000
"""Registrations a second: as many as a site of thousands of servers has when all start at once."""
SIMULATION_LATE_MS: Final = 100
"""A simulation that is later acknowledges late: a registrar waits for 500 ms in all."""
_PATIENCE_S: Final = 60.0
_SETTLED_S: Final = 2.0
_READY_S: Final = 6.0
"""The first registrar looks for a peer that could tell it of the handlespace for 5 s."""


@dataclass(frozen=True)
class Borne:
    """The measurement with a number of pool elements, each to be asked every `wanted_ms`.

    `registered`: elements that registered within a minute. `interval_ms`: how often an element was really
    asked. `keep_alive_us`, `registration_us`: processor time of a registrar for a keep-alive of its own, and
    for a registration anywhere. `busy_percent`, `sctp_percent`: of a core, the busiest registrar and its
    sctpd, with every element registering again every 2 s. `simulation_percent`: the process that plays the
    elements and its sctpd. `simulation_late_ms`: how late that process came to its work at most; above
    `SIMULATION_LATE_MS` the row tells of the simulation. `lost`: associations that ended. `missing`: live
    elements that a registrar did not list at the end. `detected_*_ms`: until no registrar listed an element
    that had fallen silent; none was tried while live ones were missing.
    """

    elements: int
    wanted_ms: int
    per_association: int
    registered: int
    interval_ms: float
    keep_alive_us: float
    registration_us: float
    busy_percent: float
    sctp_percent: float
    simulation_percent: float
    simulation_late_ms: float
    lost: int
    missing: int
    detected_p50_ms: float
    detected_max_ms: float
    detected_ms: Sequence[float] = field(default_factory=list, repr=False)
    """The time of each trial; none in older reports."""

    @property
    def is_of_simulation(self) -> bool:
        """Whether the simulation, or this machine, was too slow to tell what registrars bear."""
        return self.simulation_late_ms > SIMULATION_LATE_MS


def plan(*, quick: bool) -> list[tuple[int, int]]:
    """Return elements and intervals in ms: as shipped, and as `rspdns-registrar render` computes them."""
    shipped_ms = TIMERS_MS[KEEP_ALIVE]
    return [
        (elements, interval_ms)
        for elements in (QUICK_SIZES if quick else SIZES)
        for interval_ms in sorted(
            {shipped_ms, size(elements, len(REGISTRARS), REREGISTRATION_MS).keep_alive_ms}
        )
    ]


def run_registrars(run: Run, found: Sequence[Borne]) -> Iterator[Sequence[Borne]]:
    """Start three registrars and elements, measure, end it, for each of `plan`. Raises LabError."""
    done = {(borne.elements, borne.wanted_ms) for borne in found}
    seconds, trials = (1.5, 3) if run.quick else (3.0 * run.seconds, max(1, min(5, run.trials)))
    for elements, interval_ms in plan(quick=run.quick):
        if (elements, interval_ms) not in done:
            what = f"{elements:,} elements"
            with site(run.prefix, run.folder / f"registrars-{elements}-{interval_ms}") as made:
                run.say(f"{what} asked every {interval_ms} ms, {PER_ASSOCIATION} to an association")
                borne = RegistrarsSite(made, elements, interval_ms).measure(seconds, trials)
            run.say(
                f"{what}: asked every {borne.interval_ms:.0f} ms, {borne.keep_alive_us:.0f} us for each, "
                f"{borne.lost} associations lost, {borne.missing} live elements missing"
            )
            if borne.is_of_simulation:
                run.say(
                    f"the simulated elements were up to {borne.simulation_late_ms:.0f} ms late: this machine "
                    "is too busy, or too slow, to tell what the registrars bear"
                )
            yield [borne]


class Watched(NamedTuple):
    """The work of a time; processor time of each registrar and its sctpd, and of the simulation."""

    took_s: float
    keep_alives: int
    registrations: int
    registrars_s: Sequence[float]
    sctp_s: Sequence[float]
    simulation_s: float


def _cpu_s(host: Host) -> Mapping[str, float]:
    """Return the processor time of each program on a host (no sctpd where the kernel has SCTP)."""
    spent: defaultdict[str, float] = defaultdict(float)
    for pid in processes_in(host.path):
        with contextlib.suppress(psutil.Error, OSError):
            spent[psutil.Process(pid).name()] += processor_s(pid)
    return spent


class RegistrarsSite:
    """Three registrars, each at one of `hosts`, and elements that answer keep-alives."""

    def __init__(self, made: BenchSite, elements: int, interval_ms: int) -> None:
        self._site, self._elements, self._interval_ms = made, elements, interval_ms
        self.hosts = made.hosts(REGISTRARS)
        for number, host in enumerate(self.hosts, 1):
            made.registrar(number, host, REGISTRARS, {KEEP_ALIVE: interval_ms})
        self._own = made.network.add_host("pes", ELEMENTS)
        time.sleep(_READY_S)
        words = (ELEMENTS, elements, PER_ASSOCIATION, PER_S, made.control, *REGISTRARS)
        made.python("elements", self._own, "rspdns_lab.bench.kept_alive", *words)
        wait_until(made.control.exists, "the simulated elements", _PATIENCE_S, *made.programs)
        end_s = time.monotonic() + _PATIENCE_S
        while made.tell("state")["registered"] < elements and time.monotonic() < end_s:
            time.sleep(0.2)

    def measure(self, seconds: float, trials: int) -> Borne:
        """Measure keep-alives alone, then with registrations, then how long silent elements stay."""
        time.sleep(_SETTLED_S)
        asking = self.watch(seconds)
        asked = max(1, asking.keep_alives)
        self._site.tell("again")
        time.sleep(_SETTLED_S)
        both = self.watch(seconds)
        registering_s = sum(both.registrars_s) - sum(asking.registrars_s) / asked * both.keep_alives
        state = self._site.tell("state")
        missing = max(self._site.tell("missing")["missing"])
        silenced_ms = self._silence(trials) if missing == 0 else []
        return Borne(
            elements=self._elements,
            wanted_ms=self._interval_ms,
            per_association=PER_ASSOCIATION,
            registered=state["registered"],
            interval_ms=round(1000 * asking.took_s * self._elements / asked, 1),
            keep_alive_us=round(1e6 * sum(asking.registrars_s) / asked, 1),
            registration_us=round(
                max(0.0, 1e6 * registering_s / len(REGISTRARS) / max(1, both.registrations)), 1
            ),
            busy_percent=round(100 * max(both.registrars_s) / both.took_s, 1),
            sctp_percent=round(100 * max(both.sctp_s) / both.took_s, 1),
            simulation_percent=round(100 * both.simulation_s / both.took_s, 1),
            simulation_late_ms=round(state["late_ms"], 1),
            lost=sum(state["lost"].values()),
            missing=missing,
            detected_p50_ms=round(percentile(silenced_ms, 50), 1),
            detected_max_ms=round(max(silenced_ms, default=0.0), 1),
            detected_ms=silenced_ms,
        )

    def watch(self, seconds: float) -> Watched:
        """Return the work of this number of seconds."""
        before, began_s = self._counts(), time.monotonic()
        time.sleep(seconds)
        after = self._counts()
        return Watched(
            time.monotonic() - began_s,
            after.keep_alives - before.keep_alives,
            after.registrations - before.registrations,
            [now - was for was, now in zip(before.registrars_s, after.registrars_s, strict=True)],
            [now - was for was, now in zip(before.sctp_s, after.sctp_s, strict=True)],
            after.simulation_s - before.simulation_s,
        )

    def _counts(self) -> Watched:
        state = self._site.tell("state")
        spent = [_cpu_s(host) for host in self.hosts]
        return Watched(
            0.0,
            state["keep_alives"],
            state["registrations"],
            [programs["rspregistrar"] for programs in spent],
            [programs["sctpd"] for programs in spent],
            sum(_cpu_s(self._own).values()),
        )

    def _silence(self, trials: int) -> list[float]:
        draw = random.Random(1)  # noqa: S311 - chance, not a secret
        return [
            float(self._site.tell("silence", element=draw.randrange(self._elements))["took_ms"])
            for _ in range(trials)
        ]


_TEXT: Final = (
    "Three registrars; simulated elements, ten to an association, each registering again every 2 s. "
    "Intervals are the shipped one and, where it differs, the one that `rspdns-registrar render` computes. "
    f"If the simulation was late by more than {SIMULATION_LATE_MS} ms, its row measures the machine."
)


def _gone(row: Borne) -> str:
    times = f"{row.detected_p50_ms / 1000:.2f}, {row.detected_max_ms / 1000:.2f} s"
    return times if row.detected_max_ms else "-"


_COSTS: Final[Columns[Borne]] = (
    *(("elements", "{elements:,}"), ("to be asked every", "{wanted_ms} ms")),
    *(("us a keep-alive", "{keep_alive_us:.0f}"), ("us a registration", "{registration_us:.0f}")),
    *(("a registrar, % of a core", "{busy_percent:.0f}"), ("its SCTP, %", "{sctp_percent:.0f}")),
    ("the simulation, %", "{simulation_percent:.0f}"),
)
_KEPT: Final[Columns[Borne]] = (
    *(("elements", "{elements:,}"), ("to be asked every", "{wanted_ms} ms")),
    *(("asked every", "{interval_ms:.0f} ms"), ("late by", "{simulation_late_ms:.0f} ms")),
    *(("associations lost", "{lost}"), ("live ones missing", "{missing}")),
    ("a silent one gone after: median, longest", _gone),
)


def _sections(found: Sequence[Borne]) -> list[Section]:
    rows = sorted(found, key=lambda borne: (borne.elements, borne.wanted_ms))
    times = [borne.detected_ms or (borne.detected_p50_ms, borne.detected_max_ms) for borne in rows]
    silent = Dots(
        "Until no registrar listed an element that had fallen silent, a dot for each trial.",
        "ms",
        [f"{borne.elements:,} elements, asked every {borne.wanted_ms} ms" for borne in rows],
        {"trials": [[time_ms for time_ms in of if time_ms] for of in times]},
    )
    elements = [borne.elements for borne in rows]
    curves = [
        Curve("a registrar", elements, [borne.busy_percent for borne in rows], GREEN),
        Curve("its SCTP", elements, [borne.sctp_percent for borne in rows], BLUE),
        Curve("the simulation", elements, [borne.simulation_percent for borne in rows], GREY),
    ]
    busy = Curves(
        "Processor time, each element registering every 2 s.", "elements", "% of a core", curves, "x"
    )
    return [
        Section("Registrars", _TEXT, table_of(_COSTS, rows), [busy]),
        Section("Elements that are missed", "", table_of(_KEPT, rows), [silent]),
    ]


def _figures(found: Sequence[Borne]) -> dict[str, float]:
    return {
        f"registrars_{borne.elements}_{borne.wanted_ms}_{key}": getattr(borne, key)
        for borne in found
        for key in ("missing", "keep_alive_us")
    }


PART: Final = Part(
    "registrars",
    "How many servers three registrars serve",
    (Borne,),
    run_registrars,
    _sections,
    _figures,
    lambda fields: Borne(**fields),
)
