"""Hosts, registrars and name servers of a simulation in which messages take time."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Final

from pool_user import Belief, BeliefChange, Intervals, PoolRules, PoolUser

from rserpool import (
    HandleTableRequest,
    HandleUpdate,
    PoolElement,
    RegistrarAddress,
    Registration,
    UpdateAction,
    asap,
    enrp,
)
from rspdns_lab.scale.figures import MessageCosts
from rspdns_lab.simulate import determinism
from rspdns_lab.simulate.kernel import Kernel, SimulatedProcess, Work
from rspdns_lab.simulate.network import SimulatedHost, SimulatedNetwork
from rspdns_lab.simulate.parts import SimulatedRegistrar
from rspdns_lab.simulate.registrar import KEEP_ALIVE_S, RegistrarModel

REGIONS: Final = 3
FARTHEST_S: Final = 0.085
"""The longest way of a packet from place to place, one way."""
_BACKGROUND_S: Final = 0.1


class CountedProcess(SimulatedProcess):
    """A process that knows how busy it is: by the costs it was told (`spend`), and really, here (`cpu_s`)."""

    def __init__(self, host: SimulatedHost, name: str) -> None:
        super().__init__(host.kernel, f"{host.name} {name}", host.clock)
        self.busy_us: Counter[int] = Counter()
        """By the second."""
        self.cpu_s = 0.0

    def spend(self, work_us: float) -> None:
        """Be busy for this long with the work of this moment: all that comes meanwhile waits."""
        now = self.kernel.now
        self._busy_until_s = max(now, self._busy_until_s) + work_us / 1e6
        self.busy_us[int(now)] += round(work_us)

    def enter(self, work: Work, arguments: Sequence[Any]) -> None:
        """Do this, and see how long it took."""
        began_s = determinism.real_s()
        super().enter(work, arguments)
        self.cpu_s += determinism.real_s() - began_s

    def busy(self, begin: int, end: int) -> list[float]:
        """The part of each second that it was busy."""
        return [self.busy_us[second] / 1e6 for second in range(begin, end)]


class PlacedHost(SimulatedHost):
    """A host at a place."""

    def __init__(self, kernel: Kernel, name: str, address: str, place: int) -> None:
        super().__init__(kernel, name, address)
        self.place = place

    def start(self, name: str) -> CountedProcess:
        """Start a process."""
        process = self.processes[name] = CountedProcess(self, name)  # type: ignore[abstract]
        return process


class PlacedNetwork(SimulatedNetwork):
    """Places on a square, sorted from west to east: the thirds are the regions."""

    def __init__(self, kernel: Kernel, places: int) -> None:
        super().__init__(kernel)
        chance = kernel.random.random
        self._points = sorted((chance(), chance()) for _ in range(places))
        self.placed: list[PlacedHost] = []

    def place_host(self, name: str, address: str, place: int) -> PlacedHost:
        """Make a host at a place; the places have turns."""
        host = PlacedHost(self.kernel, name, address, place % len(self._points))
        self.hosts[name] = self.by_address[address] = host
        self.placed.append(host)
        return host

    def in_region(self, region: int) -> set[str]:
        """The names of all hosts in a region."""
        return {each.name for each in self.placed if each.place * REGIONS // len(self._points) == region}

    def delay_s(self, source: SimulatedHost, target: SimulatedHost) -> float | None:
        """The time from place to place comes to that within one."""
        delay_s = super().delay_s(source, target)
        if delay_s is None or not (isinstance(source, PlacedHost) and isinstance(target, PlacedHost)):
            return delay_s
        return delay_s + FARTHEST_S / math.sqrt(2) * math.dist(
            self._points[source.place], self._points[target.place]
        )


@dataclass(frozen=True)
class Following:
    """The name servers that follow a registrar: how many, how many of them are played, what messages cost."""

    costs: MessageCosts
    followers: int
    played: int


class CostedRegistrar(RegistrarModel):
    """A registrar whose messages take time. Name servers that are played are anywhere in the row of all
    followers each time it tells them of something."""

    def __init__(
        self,
        own: RegistrarAddress,
        peers: Sequence[RegistrarAddress],
        process: CountedProcess,
        on_ready: Callable[[], object],
        following: Following,
    ) -> None:
        self._process, self._following, self._costs = process, following, following.costs
        super().__init__(own, peers, process, on_ready)
        self._ask_elements()
        self._serve_followers()

    def _ask_elements(self) -> None:
        self._process.spend(self._costs.keep_alive_us * self._handlespace.ownership.count(self.identifier))
        self._process.call_later(KEEP_ALIVE_S, self._ask_elements)

    def _serve_followers(self) -> None:
        self._process.spend(self._costs.name_server_us * self._following.followers * _BACKGROUND_S)
        self._process.call_later(_BACKGROUND_S, self._serve_followers)

    def _asked(self, association: int, message: asap.AsapMessage, source: tuple[str, int]) -> None:
        if isinstance(message, Registration):
            self._process.spend(self._costs.registration_us)
        super()._asked(association, message, source)

    def _take_message(self, message: enrp.EnrpMessage, association: int, source: tuple[str, int]) -> None:
        match message:
            case HandleUpdate():
                self._process.spend(self._costs.registration_us)
            case HandleTableRequest() if source not in self._given:
                each = self._following.followers / max(1, self._following.played)
                self._process.spend(self._costs.update_us * len(self._handlespace.elements) * each)
        super()._take_message(message, association, source)

    def _tell(self, action: UpdateAction, handle: bytes, element: PoolElement) -> None:
        us, kernel = self._costs.update_us, self._process.kernel
        row = max(1, self._following.followers)
        for endpoint, peer in self._peers.by_endpoint.items():
            before = 0 if endpoint in self._given else kernel.random.randrange(row)
            message = HandleUpdate(self.identifier, peer, action, handle, element)
            kernel.after(before * us / 1e6, self._say_late, peer, message)
        self._process.spend(us * self._following.followers)

    def _say_late(self, peer: int, message: HandleUpdate) -> None:
        if self._process.is_alive:
            self._peers.say(peer, message)


class CostedRegistrarHost(SimulatedRegistrar):
    """A host with such a registrar."""

    process: CountedProcess

    def __init__(self, host: PlacedHost, number: int, peers: Sequence[str], following: Following) -> None:
        super().__init__(host, number, peers)
        self._following = following
        self.is_given_up = False
        """Whether its supervisor starts it no more."""

    def _ended(self) -> None:
        if not self.is_given_up:
            super()._ended()

    def _make(self) -> None:
        self._tell(lambda: self.sentinel.registrar_started())
        ready = lambda: self._tell(lambda: self.sentinel.registrar_ready())  # noqa: E731 - said twice
        peers = [RegistrarAddress(peer) for peer in self._peers]
        own = RegistrarAddress(self.host.address)
        self.model = CostedRegistrar(own, peers, self.process, ready, self._following)


def registrars_at(
    network: PlacedNetwork, name: str, addresses: Sequence[str], places: Sequence[int], following: Following
) -> list[CostedRegistrarHost]:
    """Make registrars that are each other's peers, and start them."""
    made = []
    for number, (address, place) in enumerate(zip(addresses, places, strict=True), 1):
        host = network.place_host(f"{name}{number}", address, place)
        others = [other for other in addresses if other != address]
        made.append(CostedRegistrarHost(host, number, others, following))
        made[-1].boot()
    return made


class PlayedNameServer:
    """A name server's pool user; `on_change` is told its belief's changes."""

    def __init__(
        self,
        host: PlacedHost,
        registrars: Sequence[str],
        handles: Sequence[str],
        on_change: Callable[["PlayedNameServer", BeliefChange], None],
        hot_for_s: float = math.inf,
    ) -> None:
        self.host = host
        self.shown: frozenset[str] = frozenset()
        """The addresses that are in, as `on_change` notes them."""
        self.process = host.start("name-server")
        self.process.do(self._begin, registrars, handles, on_change, Intervals(hot_for_s=hot_for_s))

    def _begin(
        self,
        registrars: Sequence[str],
        handles: Sequence[str],
        on_change: Callable[["PlayedNameServer", BeliefChange], None],
        intervals: Intervals,
    ) -> None:
        belief = Belief(registrars, dict.fromkeys(handles, PoolRules((ip_network("10.0.0.0/8"),))))
        PoolUser(
            [RegistrarAddress(each) for each in registrars],
            handles,
            belief,
            lambda change: on_change(self, change),
            is_to_follow=True,
            intervals=intervals,
            timeout_ms=300,
            on_events=lambda _: None,
        ).start()
