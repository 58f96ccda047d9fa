"""How many servers three registrars bear with the timers that are shipped.

Real are the registrars; simulated are the pool elements, ten to an association. Every registrar asks its
elements at the shipped interval, so what is measured is the processor time of a keep-alive, whether the
interval is kept, whether a live element is lost, and how long a silent one stays.
"""

import contextlib
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
from daemon_kit.control import ControlError, request
from registrar_config import KEEP_ALIVE, TIMERS_MS, RegistrarSettings, SctpEndpoint, arguments, size

from rspdns_lab.bench.kept_alive import REREGISTRATION_MS
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, Network, processes_in
from rspdns_lab.net.preconditions import find_sctp
from rspdns_lab.net.processes import Program, end_programs, processor_s
from rspdns_lab.observe.percentiles import percentile

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

    @property
    def is_of_simulation(self) -> bool:
        """Whether the simulation, or this machine, was too slow to tell what registrars bear."""
        return self.simulation_late_ms > SIMULATION_LATE_MS

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        return {"part": "registrars", **asdict(self)}


def plan(most_elements: int, *, quick: bool) -> list[tuple[int, int]]:
    """Return elements and intervals in ms: as shipped, and as `rspdns-registrar render` computes them."""
    sizes = [elements for elements in (QUICK_SIZES if quick else SIZES) if elements <= most_elements]
    shipped_ms = TIMERS_MS[KEEP_ALIVE]
    return [
        (elements, interval_ms)
        for elements in sizes
        for interval_ms in sorted(
            {shipped_ms, size(elements, len(REGISTRARS), REREGISTRATION_MS).keep_alive_ms}
        )
    ]


def run_registrars(
    prefix: str,
    folder: Path,
    elements: int,
    interval_ms: int,
    say: Callable[[str], object],
    *,
    seconds: float = 10.0,
    trials: int = 5,
    per_association: int = PER_ASSOCIATION,
) -> Borne:
    """Start three registrars and this number of elements, measure, end it. Raises LabError."""
    with Network(prefix) as network, contextlib.ExitStack() as cleanup:
        programs: list[Program] = []
        cleanup.callback(end_programs, programs)
        say(f"{elements:,} elements asked every {interval_ms} ms, {per_association} to an association")
        scene = _Scene(network, folder, elements, per_association, interval_ms, programs)
        found = scene.measure(seconds, trials)
    say(
        f"{elements:,} elements: asked every {found.interval_ms:.0f} ms, "
        f"{found.keep_alive_us:.0f} us for each, "
        f"{found.lost} associations lost, {found.missing} live elements missing"
    )
    if found.is_of_simulation:
        say(
            f"the simulated elements were up to {found.simulation_late_ms:.0f} ms late: this machine is too "
            "busy, or too slow, to tell what the registrars bear"
        )
    return found


class _Watched(NamedTuple):
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


class _Scene:
    def __init__(
        self,
        network: Network,
        folder: Path,
        elements: int,
        per_association: int,
        interval_ms: int,
        programs: list[Program],
    ) -> None:
        self._elements, self._per_association, self._interval_ms = elements, per_association, interval_ms
        self._folder, self._programs, self._sctp = folder, programs, find_sctp()
        self._control = folder / "elements.sock"
        folder.mkdir(parents=True)
        self._hosts = [
            network.add_host(f"r{number}", address) for number, address in enumerate(REGISTRARS, 1)
        ]
        for number, host in enumerate(self._hosts, 1):
            self._start_registrar(number, host)
        self._own = own = network.add_host("pes", ELEMENTS)
        command = [sys.executable, "-m", "rspdns_lab.bench.kept_alive", ELEMENTS, str(elements)]
        command += [str(per_association), str(PER_S), str(self._control), *REGISTRARS]
        time.sleep(_READY_S)
        self._start("elements", own, command)
        self._wait_until_registered()

    def measure(self, seconds: float, trials: int) -> Borne:
        """Measure keep-alives alone, then with registrations, then how long silent elements stay."""
        time.sleep(_SETTLED_S)
        asking = self._watch(seconds)
        asked = max(1, asking.keep_alives)
        self._tell("again")
        time.sleep(_SETTLED_S)
        both = self._watch(seconds)
        registering_s = sum(both.registrars_s) - sum(asking.registrars_s) / asked * both.keep_alives
        state = self._state()
        missing = max(self._tell("missing")["missing"])
        silenced_ms = self._silence(trials) if missing == 0 else []
        return Borne(
            elements=self._elements,
            wanted_ms=self._interval_ms,
            per_association=self._per_association,
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
        )

    def _watch(self, seconds: float) -> _Watched:
        """Return the work of this number of seconds."""
        before, began_s = self._counts(), time.monotonic()
        time.sleep(seconds)
        after = self._counts()
        return _Watched(
            time.monotonic() - began_s,
            after.keep_alives - before.keep_alives,
            after.registrations - before.registrations,
            [now - was for was, now in zip(before.registrars_s, after.registrars_s, strict=True)],
            [now - was for was, now in zip(before.sctp_s, after.sctp_s, strict=True)],
            after.simulation_s - before.simulation_s,
        )

    def _counts(self) -> _Watched:
        state = self._state()
        spent = [_cpu_s(host) for host in self._hosts]
        return _Watched(
            0.0,
            state["keep_alives"],
            state["registrations"],
            [one["rspregistrar"] for one in spent],
            [one["sctpd"] for one in spent],
            sum(_cpu_s(self._own).values()),
        )

    def _silence(self, trials: int) -> list[float]:
        draw = random.Random(1)  # noqa: S311 - chance, not a secret
        return [
            float(self._tell("silence", element=draw.randrange(self._elements))["took_ms"])
            for _ in range(trials)
        ]

    def _wait_until_registered(self) -> None:
        wait_until(self._control.exists, "the simulated elements", _PATIENCE_S, *self._programs)
        end_s = time.monotonic() + _PATIENCE_S
        while self._state()["registered"] < self._elements and time.monotonic() < end_s:
            time.sleep(0.2)

    def _start_registrar(self, number: int, host: Host) -> Program:
        endpoints = [SctpEndpoint.parse(address, 9901) for address in REGISTRARS]
        own = endpoints[number - 1]
        peers = tuple(one for one in endpoints if one != own)
        settings = RegistrarSettings(
            SctpEndpoint.parse(host.address, 3863), own, peers, {**TIMERS_MS, KEEP_ALIVE: self._interval_ms}
        )
        return self._start(f"registrar-{number}", host, arguments(settings))

    def _start(self, name: str, host: Host, command: Sequence[str]) -> Program:
        log = self._folder / f"{name}.log"
        program = Program(name, host, self._sctp.command(command), log, self._sctp.environment)
        program.start()
        self._programs.append(program)
        return program

    def _state(self) -> dict[str, Any]:
        return self._tell("state")

    def _tell(self, command: str, **arguments: int) -> dict[str, Any]:
        try:
            return request(self._control, command, timeout_s=_PATIENCE_S, **arguments)
        except ControlError as error:
            raise LabError(f"the simulated pool elements: {error}") from None
