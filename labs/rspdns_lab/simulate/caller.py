"""A client that calls servers by RFC 2782, and the caching resolver that it asks: models.

Resolver. Kept: an answer lives as long as its lowest TTL; after a name server that answers SERVFAIL, or
nothing within ASK_TIMEOUT_S, the next one is asked; a failure is not cached. Left out: negative caching
beyond a second, prefetch, answers that are served stale.

Client. Kept: targets by priority, and by weight within one; each is tried until one takes the call. Left out:
what is said in a call.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rspdns_lab.simulate.kernel import Kernel
from rspdns_lab.simulate.network import SimulatedHost, SimulatedNetwork
from rspdns_lab.simulate.parts import SimulatedNameServer
from rspdns_lab.simulate.powerdns import Packet

ASK_TIMEOUT_S: Final = 0.4
TRY_S: Final = 0.5
"""How long a call waits for a server that says nothing: T1 of SIP."""


class SrvTarget(NamedTuple):
    """The data of an SRV record."""

    priority: int
    weight: int
    port: int
    target: str


def services(packet: Packet) -> list[SrvTarget]:
    """The SRV records of an answer."""
    words = [record["content"].split() for record in packet.answer]
    return [SrvTarget(int(a), int(b), int(c), target.rstrip(".").lower()) for a, b, c, target in words]


def in_order(found: Iterable[SrvTarget], chance: Callable[[], float]) -> list[SrvTarget]:
    """The order in which to try targets (RFC 2782, page 3); `chance` gives numbers from 0 to below 1."""
    waiting = sorted(found, key=lambda each: (each.priority, each.weight != 0))
    ordered: list[SrvTarget] = []
    while waiting:
        tier = [each for each in waiting if each.priority == waiting[0].priority]
        drawn, total = math.floor(chance() * (sum(each.weight for each in tier) + 1)), 0
        for each in tier:
            total += each.weight
            if total >= drawn:
                break
        ordered.append(each)
        waiting.remove(each)
    return ordered


class SimulatedResolver:
    """A caching resolver at `host`, which asks these name servers."""

    def __init__(self, host: SimulatedHost, name_servers: Sequence[SimulatedNameServer]) -> None:
        self._host = host
        self._kernel: Kernel = host.kernel
        self._name_servers = list(name_servers)
        self._cached: dict[tuple[str, str], tuple[float, Packet]] = {}

    def resolve(
        self, network: SimulatedNetwork, name: str, kind: str, answered: Callable[[Packet | None], None]
    ) -> None:
        """Answer from the cache, or ask; None: no name server answered."""
        kept = self._cached.get((name, kind))
        if kept is not None and self._kernel.now < kept[0]:
            answered(kept[1])
            return
        _ResolverQuestion(self, network, name, kind, answered).ask(list(self._name_servers))

    def keep(self, name: str, kind: str, packet: Packet) -> None:
        """Keep an answer for its TTL."""
        lives_s = [record["ttl"] for record in (*packet.answer, *packet.additional)]
        self._cached[name, kind] = self._kernel.now + min(lives_s, default=1), packet

    def prefer(self, name_server: SimulatedNameServer) -> None:
        """This name server answered: it is asked first from now on."""
        self._name_servers.remove(name_server)
        self._name_servers.insert(0, name_server)

    @property
    def host(self) -> SimulatedHost:
        """The host that it runs on."""
        return self._host


class _ResolverQuestion:
    """One question, to one name server after the other."""

    def __init__(
        self,
        resolver: SimulatedResolver,
        network: SimulatedNetwork,
        name: str,
        kind: str,
        answered: Callable[[Packet | None], None],
    ) -> None:
        self._resolver = resolver
        self._network = network
        self._question = name, kind
        self._answered = answered
        self._attempt = 0

    def ask(self, left: list[SimulatedNameServer]) -> None:
        """Ask the first of these."""
        self._attempt += 1
        if not left:
            self._answered(None)
            return
        name_server, *others = left
        kernel, attempt = self._network.kernel, self._attempt

        def take(packet: Packet) -> None:
            back_s = self._network.delay_s(name_server.host, self._resolver.host)
            if back_s is not None:
                kernel.after(back_s, self._take, attempt, name_server, others, packet)

        def arrive() -> None:
            process = name_server.powerdns.process
            if process.is_alive:
                process.do(name_server.powerdns.ask, *self._question, take)

        delay_s = self._network.delay_s(self._resolver.host, name_server.host)
        if delay_s is not None:
            kernel.after(delay_s, arrive)
        kernel.after(ASK_TIMEOUT_S, self._give_up, attempt, others)

    def _give_up(self, attempt: int, others: list[SimulatedNameServer]) -> None:
        if attempt == self._attempt:
            self.ask(others)

    def _take(
        self,
        attempt: int,
        name_server: SimulatedNameServer,
        others: list[SimulatedNameServer],
        packet: Packet,
    ) -> None:
        if attempt != self._attempt:
            return
        if packet.rcode != "NOERROR":
            self.ask(others)
            return
        self._attempt += 1
        self._resolver.prefer(name_server)
        self._resolver.keep(*self._question, packet)
        self._answered(packet)


@dataclass(frozen=True, slots=True)
class SrvCall:
    """One call: its answer of DNS (None: there was none), the addresses tried in vain, and the one that took
    it; empty: none did."""

    began_s: float
    answered_s: float
    packet: Packet | None
    in_vain: Sequence[str]
    address: str


class SrvCaller:
    """A client; `takes` says whether the server at an address would take a call, `told` gets each call."""

    def __init__(
        self,
        network: SimulatedNetwork,
        resolver: SimulatedResolver,
        question: str,
        takes: Callable[[str], bool],
        told: Callable[[SrvCall], None],
    ) -> None:
        self._network = network
        self._resolver = resolver
        self._question = question
        self._takes = takes
        self._told = told
        self._chance = random.Random("calls")  # noqa: S311 - a scenario, no secret

    def call(self) -> None:
        """SrvCall once."""
        began_s = self._network.kernel.now
        self._resolver.resolve(
            self._network, self._question, "SRV", lambda packet: self._begin(began_s, packet)
        )

    def _begin(self, began_s: float, packet: Packet | None) -> None:
        found = [] if packet is None else in_order(services(packet), self._chance.random)
        addresses = [] if packet is None else [packet.addresses(each.target) for each in found]
        self._try(
            SrvCall(began_s, self._network.kernel.now, packet, (), ""),
            [each[0] for each in addresses if each],
        )

    def _try(self, call: SrvCall, left: Sequence[str]) -> None:
        if not left:
            self._told(call)
            return
        address, *others = left
        if self._takes(address):
            self._told(SrvCall(call.began_s, call.answered_s, call.packet, call.in_vain, address))
            return
        missed = SrvCall(call.began_s, call.answered_s, call.packet, (*call.in_vain, address), "")
        self._network.kernel.after(TRY_S, self._try, missed, others)
