"""Hosts and the network between them: packets that are lost, late, doubled, overtaken, or kept out.

`SimulatedNetwork.delay_s` decides the fate of every packet. SCTP (`associations`), UDP and TCP (`sockets`)
are built on it. A host that is down neither sends nor receives.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from rspdns_lab.simulate.kernel import Kernel, SimulatedClock, SimulatedProcess

SHORTEST_S: Final = 0.0001
"""The shortest way of a packet; each takes up to twice as long."""


class SimulatedHost:
    """A host: its address, clocks, processes, and who listens at its ports."""

    def __init__(self, kernel: Kernel, name: str, address: str) -> None:
        self.kernel = kernel
        self.name = name
        self.address = address
        self.clock = SimulatedClock(kernel)
        self.is_up = True
        self.is_disk_full = False
        self.boots = 0
        """How often its power failed: what was sent before then has no sender any more."""
        self.processes: dict[str, SimulatedProcess] = {}
        self.listeners: dict[tuple[str, int], Any] = {}
        """By protocol and port."""
        self._last_port = 32_768

    def start(self, name: str) -> SimulatedProcess:
        """Start a process; one of that name must not live any more."""
        process = self.processes[name] = SimulatedProcess(  # type: ignore[abstract] # what nothing here calls
            self.kernel, f"{self.name} {name}", self.clock
        )
        return process

    def free_port(self) -> int:
        """A port that no socket had lately."""
        self._last_port = self._last_port + 1 if self._last_port < 60_999 else 32_769
        return self._last_port

    def power_off(self) -> None:
        """Everything ends, and nobody is told."""
        self.is_up = False
        self.boots += 1
        for process in self.processes.values():
            process.kill()

    def power_on(self) -> None:
        """It is back, without a process."""
        self.is_up = True


class SimulatedNetwork:
    """The network of one scenario. Faults set the attributes; everything else reads them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.hosts: dict[str, SimulatedHost] = {}
        self.by_address: dict[str, SimulatedHost] = {}
        self.cuts: dict[tuple[str, str], int] = {}
        """From one host to another (names) no packet passes; the value counts the faults that want it."""
        self.loss: dict[tuple[str, str], float] = {}
        """The part of the packets that is lost, from one host to another."""
        self.slowness_s: dict[tuple[str, str], float] = {}
        """How much longer packets take at most, from one host to another: they overtake each other, too."""
        self.is_folding = True
        """Whether questions and keep-alives that can't but be answered are not played packet by packet."""
        self.doubling = 0.0
        """The part of the packets that arrives twice."""
        self.on_impairment: Callable[[], None] = lambda: None
        self.sctp_ends: Callable[[SimulatedHost], int] = lambda host: 0
        """How many associations a host has."""
        self._descriptors = 1000

    def add_host(self, name: str, address: str) -> SimulatedHost:
        """Make a host."""
        host = self.hosts[name] = self.by_address[address] = SimulatedHost(self.kernel, name, address)
        return host

    def descriptor(self) -> int:
        """The number of a new socket."""
        self._descriptors += 1
        return self._descriptors

    @property
    def here(self) -> SimulatedHost:
        """The host of the process that is running."""
        running = self.kernel.running
        assert running is not None  # noqa: S101 - sockets are made by processes
        return self.hosts[running.name.partition(" ")[0]]

    def delay_s(self, source: SimulatedHost, target: SimulatedHost) -> float | None:
        """How long a packet takes that is sent now; None: it is lost."""
        if not (source.is_up and target.is_up):
            return None
        chance = self.kernel.random.random
        way = source.name, target.name
        if way in self.cuts or (way in self.loss and chance() < self.loss[way]):
            return None
        delay_s = SHORTEST_S * (1 + chance())
        slowness_s = self.slowness_s.get(way)
        return delay_s if slowness_s is None else delay_s + slowness_s * chance()

    def is_cut(self, source: SimulatedHost, target: SimulatedHost) -> bool:
        """Whether no packet passes at present."""
        return not (source.is_up and target.is_up) or (source.name, target.name) in self.cuts

    def is_sound(self, first: SimulatedHost, second: SimulatedHost) -> bool:
        """Whether every packet passes at once, there and back: what brings no news may be folded."""
        if not (self.is_folding and first.is_up and second.is_up):
            return False
        impairments = [each for each in (self.cuts, self.loss, self.slowness_s) if each]
        ways = (first.name, second.name), (second.name, first.name)
        return not (impairments and any(way in each for each in impairments for way in ways))

    def cut(self, ways: Iterable[tuple[str, str]]) -> None:
        """Keep every packet of these ways, each from a host to another, out."""
        for way in ways:
            self.cuts[way] = self.cuts.get(way, 0) + 1
        self.on_impairment()

    def join(self, ways: Iterable[tuple[str, str]]) -> None:
        """Take `cut` back."""
        for way in ways:
            self.cuts[way] -= 1
            if not self.cuts[way]:
                del self.cuts[way]
