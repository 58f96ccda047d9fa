"""The whole chain with ever more pools and pool elements: memory, processor time, time until DNS follows.

Real are the registrars, the backend that follows them, and PowerDNS; simulated are the pool elements, over
one association for each registrar. Keep-alives are rare here: three registrars that ask 10,000 elements every
300 ms would use the whole machine themselves.
"""

import functools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import psutil

from rspdns_lab.bench.part import Part, Run
from rspdns_lab.bench.programs import compiled
from rspdns_lab.bench.scale_files import owner, target, write_files
from rspdns_lab.bench.site import PATIENCE_S, RARELY, BenchSite, site
from rspdns_lab.chain.asking import Asker
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import call_in
from rspdns_lab.net.processes import Program
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.page import Columns, Section, table_of
from rspdns_lab.report.plots import BLUE, GREEN, GREY, Curve, Curves

REGISTRARS: Final = ("10.78.0.11", "10.78.0.12", "10.78.0.13")
BACKEND: Final = "10.78.0.21"
ELEMENTS: Final = "10.78.0.31"
SIZES: Final = ((1, 1), (1000, 10), (10, 10), (100, 10), (10, 100), (100, 100))
"""Pools, and elements in each. First what the program itself takes, then the size that has aims."""
QUICK_SIZES: Final = ((10, 10),)
BOUNDS: Final = {"rss_mib": 300.0, "idle_cpu_percent": 10.0, "startup_s": 5.0}
"""The aims with 1,000 pools of 10."""
AIMED_AT: Final = (1000, 10)
UPDATES_PER_S: Final = 200
_SETTLED_S: Final = 12.0
"""By then the last-known-good file is written, and no pool is looked at often any more."""


@dataclass(frozen=True)
class Size:
    """The measurement with a number of pools and of members in each.

    `startup_s`: from the start of the backend until it knows every element. `updated_cpu_us`: processor time
    of the backend for an element that reports another load. `gone_*_ms`: from the moment an element leaves
    until its pool's SRV records lack it. `back_*_ms`: from the moment it comes back until its name has its
    address again: which members of a large pool an SRV answer has, is chance.
    """

    pools: int
    members: int
    startup_s: float
    rss_mib: float
    idle_cpu_percent: float
    updated_cpu_us: float
    gone_p50_ms: float
    gone_max_ms: float
    back_p50_ms: float
    back_max_ms: float
    registrar_rss_mib: float

    @property
    def elements(self) -> int:
        """How many pool elements there are in all."""
        return self.pools * self.members


@dataclass(frozen=True)
class Extent:
    """How long is looked, and how many elements leave and come back."""

    settle_s: float = _SETTLED_S
    look_s: float = 15.0
    trials: int = 30


QUICK: Final = Extent(0.5, 1.5, 3)


def run_scale(run: Run, found: Sequence[Size]) -> Iterator[Sequence[Size]]:
    """Measure each size. Raises LabError."""
    done = {(size.pools, size.members) for size in found}
    for pools, members in QUICK_SIZES if run.quick else SIZES:
        if (pools, members) not in done:
            yield [run_size(run, pools, members)]


def run_size(run: Run, pools: int, members: int) -> Size:
    """Start everything with this number of pools, measure, end it. Raises LabError."""
    extent = Extent(look_s=3.0 * run.seconds, trials=max(1, min(30, run.trials)))
    extent = QUICK if run.quick else extent
    what = f"{pools:,} pools of {members}"
    with site(run.prefix, run.folder / f"scale-{pools}-{members}") as made:
        run.say(f"{what}: registering the elements")
        scene = _SizeSite(made, pools, members)
        run.say(
            f"{what}: starting the backend, then watching for {extent.settle_s + 2 * extent.look_s:.0f} s"
        )
        size = scene.measure(extent)
    run.say(
        f"{what}: all known after {size.startup_s:.1f} s, {size.rss_mib:.0f} MiB, "
        f"{size.idle_cpu_percent:.1f} % of a core idle, {size.updated_cpu_us:.0f} us for a load; "
        f"gone from DNS after {size.gone_p50_ms:.1f} ms (max {size.gone_max_ms:.1f})"
    )
    return size


def exponent(sizes: Sequence[Size], value: Callable[[Size], float]) -> float | None:
    """Return k of value = c x elements^k, fitted (least squares) to what sizes take above the smallest one.

    1: it grows as the number of elements does. None: it does not grow, or there are fewer than two sizes.
    """
    ordered = sorted(sizes, key=lambda size: size.elements)
    least = value(ordered[0]) if ordered else 0.0
    points = [
        (math.log(size.elements), math.log(value(size) - least))
        for size in ordered[1:]
        if value(size) > least and size.elements > ordered[0].elements
    ]
    if len({x for x, _ in points}) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


class _SizeSite:
    def __init__(self, made: BenchSite, pools: int, members: int) -> None:
        self._site, self._pools, self._members = made, pools, members
        hosts = made.hosts(REGISTRARS)
        self._backend_host = made.network.add_host("ns", BACKEND)
        self._elements_host = made.network.add_host("pes", ELEMENTS)
        self._registrars = []
        for number, host in enumerate(hosts, 1):
            self._registrars.append(made.registrar(number, host, REGISTRARS, RARELY))
            made.sentinel(number, host)
        write_files(made.folder / "ns", BACKEND, list(REGISTRARS), pools)
        words = (ELEMENTS, pools, members, made.control, *REGISTRARS)
        elements = made.python("elements", self._elements_host, "rspdns_lab.bench.pool_elements", *words)
        wait_until(
            made.control.exists, "registration of every element", PATIENCE_S, elements, *self._registrars
        )
        self._asker: Asker = call_in(self._elements_host.path, functools.partial(Asker, BACKEND))
        made.cleanup.callback(self._asker.close)

    def measure(self, extent: Extent) -> Size:
        backend, startup_s = self._start_backend()
        command = ["pdns_server", f"--config-dir={self._site.folder}/ns"]
        pdns = self._site.start("pdns", self._backend_host, command)
        wait_until(lambda: self._shown(0), "PowerDNS", PATIENCE_S, pdns, backend)
        time.sleep(extent.settle_s)
        process = _below(backend, "python")
        idle_s = _cpu_in(process, extent.look_s)
        resident = process.memory_info().rss
        updates = int(UPDATES_PER_S * extent.look_s)
        began_s, before_s = time.monotonic(), _cpu_s(process)
        self._site.tell("loads", count=updates, per_s=UPDATES_PER_S)
        time.sleep(0.5)
        took_s = time.monotonic() - began_s
        spent_s = _cpu_s(process) - before_s - idle_s * took_s / extent.look_s
        gone_ms, back_ms = self._changes(extent.trials)
        return Size(
            pools=self._pools,
            members=self._members,
            startup_s=round(startup_s, 2),
            rss_mib=round(resident / 2**20, 1),
            idle_cpu_percent=round(100 * idle_s / extent.look_s, 2),
            updated_cpu_us=round(max(0.0, 1e6 * spent_s / updates), 1),
            gone_p50_ms=percentile(gone_ms, 50),
            gone_max_ms=gone_ms[-1],
            back_p50_ms=percentile(back_ms, 50),
            back_max_ms=back_ms[-1],
            registrar_rss_mib=round(max(map(_registrar_rss_mib, self._registrars)), 1),
        )

    def _start_backend(self) -> tuple[Program, float]:
        """Start the backend; return it, and how long it took until it knew every element."""
        known = self._site.folder / "known"
        module = "rspdns_lab.bench.scale_backend"
        environment = compiled(self._backend_host, module, self._site.folder.parent / "bytecode")
        words = (self._site.folder / "ns/rspdns.toml", known, self._members)
        began_s = time.monotonic()
        backend = self._site.python("backend", self._backend_host, module, *words, environment=environment)
        wait_until(known.exists, "the backend that knows every element", PATIENCE_S, backend)
        return backend, float(known.read_text()) - began_s

    def _changes(self, trials: int) -> tuple[list[float], list[float]]:
        """Have elements leave and come back; return when DNS showed it, in ms, in order."""
        gone_ms, back_ms = [], []
        draw = random.Random(1)  # noqa: S311 - chance, not a secret
        for _ in range(trials):
            gone, back = self._leave_and_return(draw.randrange(self._pools), draw)
            gone_ms.append(gone)
            back_ms.append(back)
        return sorted(gone_ms), sorted(back_ms)

    def _leave_and_return(self, pool: int, draw: random.Random) -> tuple[float, float]:
        wait_until(lambda: self._shown(pool), "an element in DNS", 30)
        index = draw.choice(self._shown(pool))
        gone_ms = self._time("leave", pool, index, lambda: index not in self._shown(pool))
        name = target(pool, index)
        wait_until(lambda: not self._asker.finds(name), "the address of an element that left, out of DNS", 30)
        return gone_ms, self._time("join", pool, index, lambda: self._asker.finds(name))

    def _time(self, command: str, pool: int, index: int, is_told: Callable[[], bool]) -> float:
        """Give a command; return how many ms later an answer to a question first was as it should be."""
        at_s = float(self._site.tell(command, pool=pool, index=index)["at_s"])
        end_s = at_s + PATIENCE_S
        while not is_told():
            if time.monotonic() > end_s:
                raise LabError(f"{command} of an element of pool {pool}: DNS does not follow")
            time.sleep(0.001)
        return round(1000 * (time.monotonic() - at_s), 1)

    def _shown(self, pool: int) -> list[int]:
        """The elements whose targets an SRV answer of the pool has; none where there is no answer."""
        targets = self._asker.targets(owner(pool))
        return [index for index in range(self._members) if target(pool, index) in targets]


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error as problem:
        raise LabError(f"the backend ended: {problem}") from None
    return float(times.user + times.system)


def _cpu_in(process: psutil.Process, seconds: float) -> float:
    """Return the processor time, in s, that a process uses in the next `seconds`."""
    before_s = _cpu_s(process)
    time.sleep(seconds)
    return _cpu_s(process) - before_s


def _below(program: Program, name: str) -> psutil.Process:
    """Return the process called so that a program is, or has started (sctp-run starts it)."""
    top = psutil.Process(program.pid)
    for process in (top, *top.children(recursive=True)):
        if process.name().startswith(name):
            return process
    raise LabError(f"{program.name}: there is no process called {name}")


def _registrar_rss_mib(registrar: Program) -> float:
    return float(_below(registrar, "rspregistrar").memory_info().rss / 2**20)


GROWING: Final[Mapping[str, tuple[str, Callable[[Size], float]]]] = MappingProxyType(
    {
        "rss_exponent": ("memory, MiB", lambda size: size.rss_mib),
        "idle_cpu_exponent": ("idle, % of a core", lambda size: size.idle_cpu_percent),
        "startup_exponent": ("start-up, s", lambda size: size.startup_s),
        "gone_exponent": ("out of DNS after, ms (median)", lambda size: size.gone_p50_ms),
        "updated_cpu_exponent": ("processor time for a load, us", lambda size: size.updated_cpu_us),
    }
)
"""The figures that are measured against size: the exponent's name, a title, the value."""
_AIMED: Final = {
    "rss_mib": "the backend's memory, MiB",
    "idle_cpu_percent": "idle, % of a core",
    "startup_s": "from its start until all are known, s",
}
OF_LARGEST: Final = (
    "startup_s", "rss_mib", "idle_cpu_percent", "updated_cpu_us", "gone_p50_ms", "back_p50_ms"
)  # fmt: skip
"""Figures of 1,000 pools of 10 elements, or of the largest size that was measured."""
_TEXT: Final = (
    "Real registrars, backend and PowerDNS; simulated pool elements, over one association for each "
    "registrar. Idle: nobody asks, no load changes; keep-alives are rare, since three registrars that ask "
    "10,000 elements every 300 ms would use the whole machine. Exponents are of what a size takes more "
    "than the smallest: 1 grows as the number of elements, 0 does not grow."
)
_COLUMNS: Final[Columns[Size]] = (
    *(("pools", "{pools:,}"), ("elements", "{elements:,}"), ("start-up s", "{startup_s:.1f}")),
    *(("memory MiB", "{rss_mib:.0f}"), ("idle CPU %", "{idle_cpu_percent:.1f}")),
    *(("CPU us for a load", "{updated_cpu_us:.0f}"), ("a registrar, MiB", "{registrar_rss_mib:.0f}")),
)
_TIMES: Final[Columns[Size]] = (
    *(("pools", "{pools:,}"), ("elements", "{elements:,}")),
    *(
        (f"{what} {part} ms", f"{{{what}_{part}_ms:.1f}}")
        for what in ("gone", "back")
        for part in ("p50", "max")
    ),
)


def _sorted(found: Sequence[Size]) -> list[Size]:
    return sorted(found, key=lambda size: (size.elements, size.pools))


def _figures(found: Sequence[Size]) -> dict[str, float]:
    sizes = _sorted(found)
    largest = next((size for size in sizes if (size.pools, size.members) == AIMED_AT), sizes[-1])
    powers = {key: exponent(sizes, value) for key, (_, value) in GROWING.items()}
    return {
        "scale_pools": largest.pools,
        "scale_elements": largest.elements,
        **{key: getattr(largest, key) for key in OF_LARGEST},
        **{key: round(power, 2) for key, power in powers.items() if power is not None},
    }


def _sections(found: Sequence[Size]) -> list[Section]:
    sizes = _sorted(found)
    plots = {key: _plot(sizes, key) for key in GROWING}
    delay = plots.pop("gone_exponent")
    sections = [
        Section("Size", _TEXT, table_of(_COLUMNS, sizes), list(plots.values())),
        Section(
            "Changes", "One element leaves and comes back, again and again.", table_of(_TIMES, sizes), [delay]
        ),
    ]
    for size in sizes:
        if (size.pools, size.members) == AIMED_AT:
            head = ("with 1,000 pools of 10 elements", "measured", "aimed at")
            rows = [[title, f"{getattr(size, key):.1f}", f"{BOUNDS[key]:g}"] for key, title in _AIMED.items()]
            sections.append(Section("Aims", "", [head, *rows]))
    powers = [(title, exponent(sizes, value)) for title, value in GROWING.values()] if len(sizes) > 2 else []
    grown = [[title, "does not grow" if power is None else f"{power:.2f}"] for title, power in powers]
    sections.append(Section("How it grows", "", [("what", "exponent of the number of elements"), *grown]))
    return sections


def _plot(sizes: Sequence[Size], key: str) -> Curves:
    title, value = GROWING[key]
    power = exponent(sizes, value)
    curves = []
    for members, colour in ((1, GREY), (10, GREEN), (100, BLUE)):
        own = [size for size in sizes if size.members == members]
        values = [max(value(size), 0.01) for size in own]
        curves.append(Curve(f"pools of {members}", [size.elements for size in own], values, colour))
    shown = "does not grow" if power is None else f"exponent {power:.2f}"
    return Curves(f"{title}: {shown}.", "pool elements", title, curves, log="xy")


PART: Final = Part(
    "scale",
    "Many pools, many servers",
    (Size,),
    run_scale,
    _sections,
    _figures,
    lambda fields: Size(**fields),
)
