"""The whole chain with ever more pools and pool elements: memory, processor time, time until DNS follows.

Real are the registrars, the backend that follows them, and PowerDNS; simulated are the pool elements, over
one association for each registrar. Keep-alives are rare here: three registrars that ask 10,000 elements every
300 ms would use the whole machine themselves.
"""

import contextlib
import functools
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import psutil
from daemon_kit.control import ControlError, request
from registrar_config import TIMERS_MS, RegistrarSettings, SctpEndpoint, arguments

from rspdns_lab.bench.programs import compiled
from rspdns_lab.bench.scale_files import owner, target, write_files
from rspdns_lab.chain.asking import Asker
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, Network, call_in
from rspdns_lab.net.preconditions import find_sctp
from rspdns_lab.net.processes import Program, end_programs
from rspdns_lab.observe.percentiles import percentile

REGISTRARS: Final = ("10.78.0.11", "10.78.0.12", "10.78.0.13")
BACKEND: Final = "10.78.0.21"
ELEMENTS: Final = "10.78.0.31"
SIZES: Final = ((1, 1), (1000, 10), (10, 10), (100, 10), (10, 100), (100, 100))
"""Pools, and elements in each. First what the program itself takes, then the size that has aims."""
QUICK_SIZES: Final = ((10, 10),)
KEEP_ALIVE_MS: Final = 60_000
BOUNDS: Final = {"rss_mib": 300.0, "idle_cpu_percent": 10.0, "startup_s": 5.0}
"""The aims with 1,000 pools of 10."""
AIMED_AT: Final = (1000, 10)
UPDATES_PER_S: Final = 200
_PATIENCE_S: Final = 180.0
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
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

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        return {"part": "scale", **asdict(self)}


@dataclass(frozen=True)
class Extent:
    """How long is looked, and how many elements leave and come back."""

    settle_s: float = _SETTLED_S
    look_s: float = 15.0
    trials: int = 30


FULL: Final = Extent()
QUICK: Final = Extent(0.5, 1.5, 3)


def run_size(
    prefix: str, folder: Path, pools: int, members: int, extent: Extent, say: Callable[[str], None]
) -> Size:
    """Start everything with this number of pools, measure, end it. Raises LabError."""
    with Network(prefix) as network, contextlib.ExitStack() as cleanup:
        programs: list[Program] = []
        cleanup.callback(end_programs, programs)
        what = f"{pools:,} pools of {members}"
        say(f"{what}: registering the elements")
        scene = _Scene(network, folder, pools, members, programs, cleanup)
        say(f"{what}: starting the backend, then watching for {extent.settle_s + 2 * extent.look_s:.0f} s")
        size = scene.measure(extent)
    say(
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


class _Scene:
    def __init__(
        self,
        network: Network,
        folder: Path,
        pools: int,
        members: int,
        programs: list[Program],
        cleanup: contextlib.ExitStack,
    ) -> None:
        self._pools, self._members = pools, members
        self._folder = folder
        self._programs = programs
        self._sctp = find_sctp()
        self._control = folder / "elements.sock"
        folder.mkdir(parents=True)
        hosts = [network.add_host(f"r{number}", address) for number, address in enumerate(REGISTRARS, 1)]
        self._backend_host = network.add_host("ns", BACKEND)
        self._elements_host = network.add_host("pes", ELEMENTS)
        self._registrars = [self._start_registrar(number, host) for number, host in enumerate(hosts, 1)]
        write_files(folder / "ns", BACKEND, list(REGISTRARS), pools)
        self._start_elements()
        self._asker: Asker = call_in(self._elements_host.path, functools.partial(Asker, BACKEND))
        cleanup.callback(self._asker.close)

    def measure(self, extent: Extent) -> Size:
        backend, startup_s = self._start_backend()
        pdns = self._started("pdns", self._backend_host, ["pdns_server", f"--config-dir={self._folder}/ns"])
        wait_until(lambda: self._shown(0), "PowerDNS", _PATIENCE_S, pdns, backend)
        time.sleep(extent.settle_s)
        process = _below(backend, "python")
        idle_s = _cpu_in(process, extent.look_s)
        resident = process.memory_info().rss
        updates = int(UPDATES_PER_S * extent.look_s)
        began_s, before_s = time.monotonic(), _cpu_s(process)
        self._tell("loads", count=updates, per_s=UPDATES_PER_S)
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

    def _start_registrar(self, number: int, host: Host) -> Program:
        timers_ms = {
            **TIMERS_MS,
            "endpointkeepalivetransmissioninterval": KEEP_ALIVE_MS,
            "endpointkeepalivetimeoutinterval": KEEP_ALIVE_MS,
        }
        endpoints = [SctpEndpoint.parse(address, 9901) for address in REGISTRARS]
        own = endpoints[number - 1]
        settings = RegistrarSettings(
            SctpEndpoint.parse(host.address, 3863),
            own,
            tuple(one for one in endpoints if one != own),
            timers_ms,
        )
        registrar = self._started(f"registrar-{number}", host, self._sctp.command(arguments(settings)))
        sentinel = [sys.executable, "-m", "registrar_config", "sentinel", f"--number={number}"]
        sentinel += [f"--address={host.address}", "--agent-reregistration-ms=100"]
        self._started(f"sentinel-{number}", host, self._sctp.command(sentinel))
        return registrar

    def _start_elements(self) -> None:
        """Start the simulator, and wait until every element is registered."""
        command = [sys.executable, "-m", "rspdns_lab.bench.pool_elements", ELEMENTS]
        command += [str(self._pools), str(self._members), str(self._control), *REGISTRARS]
        elements = self._started("elements", self._elements_host, self._sctp.command(command))
        wait_until(
            self._control.exists, "registration of every element", _PATIENCE_S, elements, *self._registrars
        )

    def _start_backend(self) -> tuple[Program, float]:
        """Start the backend; return it, and how long it took until it knew every element."""
        known = self._folder / "known"
        module = "rspdns_lab.bench.scale_backend"
        environment = compiled(self._backend_host, module, self._folder.parent / "bytecode")
        command = [sys.executable, "-m", module]
        command += [str(self._folder / "ns/rspdns.toml"), str(known), str(self._members)]
        began_s = time.monotonic()
        backend = self._started("backend", self._backend_host, self._sctp.command(command), environment)
        wait_until(known.exists, "the backend that knows every element", _PATIENCE_S, backend)
        return backend, float(known.read_text()) - began_s

    def _started(
        self, name: str, host: Host, command: Sequence[str], environment: Mapping[str, str] = _NOTHING
    ) -> Program:
        log = self._folder / f"{name}.log"
        program = Program(name, host, command, log, {**self._sctp.environment, **environment})
        program.start()
        self._programs.append(program)
        return program

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
        at_s = float(self._tell(command, pool=pool, index=index)["at_s"])
        end_s = at_s + _PATIENCE_S
        while not is_told():
            if time.monotonic() > end_s:
                raise LabError(f"{command} of an element of pool {pool}: DNS does not follow")
            time.sleep(0.001)
        return round(1000 * (time.monotonic() - at_s), 1)

    def _tell(self, command: str, **arguments: int) -> dict[str, Any]:
        try:
            return request(self._control, command, timeout_s=_PATIENCE_S, **arguments)
        except ControlError as error:
            raise LabError(f"the simulated pool elements: {error}") from None

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
