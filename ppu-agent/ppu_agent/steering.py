"""The treatment of packets to members that died: the desired state of the kernel. Pure.

`plan()` turns views, deaths and configuration into a `Steering`; `ppu_agent.ruleset` writes that as nftables.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import sys
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final, Literal

from daemon_kit.sip import SIP_PORT
from pool_user import Member, Network, PoolView, Weighted

from ppu_agent.deaths import SILENCE_S, Departed
from ppu_agent.destinations import Address, Destination, Endpoint, destinations_of
from ppu_agent.kernel import Pacing
from rserpool import Protocol

Action = Literal["redirect", "refuse", "answer-503", "repeat"]
SOURCE_SLOTS: Final = 256
"""Clients with `affinity = "source"` are divided into this number of parts, by a hash of their address."""
SOURCE_SEED: Final = 0x70707561
"""Every agent hashes alike."""
_U32: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """The configuration of one pool handle: `on_dead` by the transport of the packet.

    `also` are transports at which its members are beside the one they registered. `pace`: how connection
    set-up to its members is paced; None: as the kernel does. `front`: the address and port that stand for the
    pool; `by_source`: a client's address has always the same server. `via_port`: what is sent to the front
    goes to the members' ppe-agents, at this SCTP port. `clients`: other hosts that may use it; None: all.
    `is_sip`: whether its servers speak SIP; None: those at port 5060.
    """

    handle: str
    on_dead: Mapping[Protocol, Action]
    also: tuple[Protocol, ...] = ()
    pace: Pacing | None = None
    front: tuple[Address, int] | None = None
    by_source: bool = False
    via_port: int | None = None
    clients: tuple[Network, ...] | None = None
    is_sip: bool | None = None

    def speaks_sip(self, port: int) -> bool:
        """Whether its servers speak SIP at this port."""
        return port == SIP_PORT if self.is_sip is None else self.is_sip

    def destinations(self, member: Member) -> list[Destination]:
        """Every destination of a member of this pool."""
        return list(destinations_of(member, self.also))


@dataclass(frozen=True, slots=True)
class Target:
    """A living member that takes what was sent to a dead one, and its share: weight 1..65535."""

    destination: Destination
    weight: int


@dataclass(frozen=True, slots=True)
class Treatment:
    """The treatment of packets to one destination, for which pool, and why, in words.

    `targets` are empty unless they are redirected. `is_certain`: also connections that are up end; else only
    new ones, and all datagrams, are treated.
    """

    destination: Destination
    action: Action
    handle: str
    why: str
    targets: tuple[Target, ...] = ()
    is_certain: bool = True

    @property
    def spares_connections(self) -> bool:
        """Whether only set-ups are treated."""
        return not self.is_certain and self.destination.protocol is not Protocol.UDP


@dataclass(frozen=True, slots=True)
class Steered:
    """A pool's front: new flows to it go to the targets, by weight, or by the client's address.

    `clients`: other hosts that may use it; None: all.
    """

    front: Destination
    handle: str
    by_source: bool
    targets: tuple[Target, ...]
    clients: tuple[Network, ...] | None = None


@dataclass(frozen=True, slots=True)
class Copied:
    """Which TCP packets are copied: to and from these networks, at these ports of the servers.

    `left_alone` are servers among them that speak no SIP: nothing is answered for them.
    """

    networks: frozenset[Network] = frozenset()
    ports: frozenset[int] = frozenset()
    left_alone: frozenset[Endpoint] = frozenset()


@dataclass(frozen=True, slots=True)
class Steering:
    """The desired state: all treatments, by destination, and all fronts, in an order that does not change."""

    treatments: tuple[Treatment, ...] = ()
    fronts: tuple[Steered, ...] = ()

    def of(self, destination: Destination) -> Treatment | None:
        """The treatment of packets to this destination; None: nothing."""
        return next((one for one in self.treatments if one.destination == destination), None)


def plan(
    policies: Sequence[PoolPolicy],
    views: Mapping[str, PoolView],
    weights: Mapping[str, Mapping[int, Weighted]],
    dead: Mapping[Destination, Departed],
) -> Steering:
    """Return what is to be done with packets to the `dead`.

    A destination is treated as the first pool of the configuration says that it left and that can lose it.
    The pool's further transports (`also`) are treated only if it had answered as a member: another service at
    the same port may live.
    `weights` are those of each pool's members, by PE identifier.
    """
    alive = {
        destination.endpoint
        for view in views.values()
        for member in view.members
        for destination in destinations_of(member)
    }
    targets = LivingTargets(views, weights)
    found: dict[Destination, Treatment] = {}
    for policy in policies:
        view = views.get(policy.handle)
        if view is None or not view.known or view.stale_since_s is not None or not view.members:
            continue
        for departed in dead.values():
            if policy.handle not in departed.pools or departed.destination.endpoint in alive:
                continue
            also = policy.also if departed.was_heard else ()
            for protocol in dict.fromkeys((departed.destination.protocol, *also)):
                destination = Destination(departed.destination.address, protocol, departed.destination.port)
                if destination not in found:
                    found[destination] = _treat(destination, policy, targets, departed)
    return Steering(
        tuple(
            found[destination] for destination in sorted(found, key=lambda destination: destination.sort_key)
        )
    )


def _treat(
    destination: Destination, policy: PoolPolicy, living: LivingTargets, departed: Departed
) -> Treatment:
    action = policy.on_dead[destination.protocol]
    why = f"out of the pool {policy.handle}, and it does not answer the agent's own probe: {departed.words}"
    is_certain = departed.is_certain
    if not is_certain and destination.protocol is not Protocol.UDP:
        why += f"; connections that are up go on until it was silent for {SILENCE_S:g} s"
    if action not in ("redirect", "repeat"):
        return Treatment(destination, action, policy.handle, why, is_certain=is_certain)
    targets = living.for_(destination, policy)
    if not targets:
        why += "; no living member has such an address: refused"
        return Treatment(destination, "refuse", policy.handle, why, is_certain=is_certain)
    return Treatment(destination, action, policy.handle, why, targets, is_certain)


class LivingTargets:
    """The living destinations that can take a packet to a dead one, or to a front.

    Each list is made once for these views and weights: a site's power cut takes hundreds of servers at once.
    If a pool has no living members, those count that only the agent's own probes found unreachable.
    """

    def __init__(self, views: Mapping[str, PoolView], weights: Mapping[str, Mapping[int, Weighted]]) -> None:
        self._views = views
        self._weights = weights
        self._made: dict[tuple[str, Protocol, int], tuple[Target, ...]] = {}

    def for_(self, destination: Destination, policy: PoolPolicy) -> tuple[Target, ...]:
        """The same tuple for every destination of this policy with the same transport and IP version."""
        key = policy.handle, destination.protocol, destination.address.version
        if key not in self._made:
            view = self._views.get(policy.handle, PoolView(policy.handle))
            members = view.members or view.unreachable
            shares = self._weights.get(policy.handle, {})
            self._made[key] = _targets_for(destination, policy, members, shares)
        return self._made[key]


def _targets_for(
    destination: Destination, policy: PoolPolicy, members: Iterable[Member], weights: Mapping[int, Weighted]
) -> tuple[Target, ...]:
    """Those with the same transport and IP version as `destination`, and the best priority that lives.

    Spares (standby) are taken only when there is nobody else.
    """
    candidates: list[tuple[bool, int, Destination, int]] = []
    for member in members:
        weighted = weights.get(member.identifier, Weighted(0, 1))
        fitting = [
            one
            for one in policy.destinations(member)
            if one.protocol is destination.protocol and one.address.version == destination.address.version
        ]
        if fitting:
            candidates.append((weighted.standby, weighted.priority, fitting[0], weighted.weight))
    best = min((one[:2] for one in candidates), default=None)
    chosen = {
        destination: weight
        for standby, priority, destination, weight in candidates
        if (standby, priority) == best
    }
    return tuple(
        Target(one, chosen[one]) for one in sorted(chosen, key=lambda destination: destination.sort_key)
    )


def relayed(
    policies: Sequence[PoolPolicy], views: Mapping[str, PoolView], departed: Iterable[Departed]
) -> dict[Destination, PoolPolicy]:
    """The TCP destinations whose connections the agent relays; the first pool of the configuration decides.

    A member that left belongs to them: a client may still ask for it. So does the pool's front.
    """
    left = list(departed)
    found: dict[Destination, PoolPolicy] = {}
    for policy in policies:
        if policy.front is not None and (policy.via_port or policy.on_dead[Protocol.TCP] == "repeat"):
            found.setdefault(Destination(policy.front[0], Protocol.TCP, policy.front[1]), policy)
        if policy.on_dead[Protocol.TCP] != "repeat":
            continue
        view = views.get(policy.handle, PoolView(policy.handle))
        members = [*view.members, *(one.member for one in left if policy.handle in one.pools)]
        for destination in itertools.chain.from_iterable(map(policy.destinations, members)):
            if destination.protocol is Protocol.TCP:
                found.setdefault(destination, policy)
    return found


def copied(
    policies: Sequence[PoolPolicy],
    accept: Mapping[str, Collection[Network]],
    views: Mapping[str, PoolView],
    departed: Iterable[Departed],
) -> Copied:
    """The knowledge of connections with which requests that a dead server left can be answered.

    `accept` are the networks of each pool. Relayed connections are left out: the relay knows their requests.
    """
    left = list(departed)
    networks: set[Network] = set()
    ports: set[int] = set()
    speaking: set[Endpoint] = set()
    others: set[Endpoint] = set()
    for policy in policies:
        if policy.on_dead[Protocol.TCP] == "repeat" or policy.via_port is not None:
            continue
        view = views.get(policy.handle, PoolView(policy.handle))
        members = [*view.members, *(one.member for one in left if policy.handle in one.pools)]
        over_tcp = {
            one.endpoint
            for one in itertools.chain.from_iterable(map(policy.destinations, members))
            if one.protocol is Protocol.TCP
        }
        served = {one for one in over_tcp if policy.speaks_sip(one[1])}
        front = set() if policy.front is None else {policy.front}
        speaking |= served | (front if served else set())
        others |= over_tcp | front
        if not served:
            continue
        ports |= {port for _, port in served}
        networks |= set(accept[policy.handle])
        if policy.front is not None:
            ports.add(policy.front[1])
            networks.add(ip_network(policy.front[0]))
    left_alone = {one for one in others - speaking if one[1] in ports}
    return Copied(frozenset(networks), frozenset(ports), frozenset(left_alone))


def drawn(targets: Sequence[Target], chance: float) -> Destination | None:
    """One of these by weight; `chance` is 0 to below 1."""
    rest = chance * sum(one.weight for one in targets)
    for one in targets:
        rest -= one.weight
        if rest < 0:
            return one.destination
    return targets[-1].destination if targets else None


def drawn_by_source(targets: Sequence[Target], client: Address) -> Destination | None:
    """The one that the kernel's rules choose for this address, too: the agent relays part of the flows.

    The same while it lives, by every transport and at every agent.
    """
    slot = _slot(client)
    return max(targets, key=lambda one: _score(one, slot)).destination if targets else None


def paced(policies: Sequence[PoolPolicy], views: Mapping[str, PoolView]) -> dict[tuple[Address, int], Pacing]:
    """How TCP set-up to each living member is paced, by its address and port; the first pool decides."""
    found: dict[tuple[Address, int], Pacing] = {}
    for policy in policies:
        view = views.get(policy.handle)
        if policy.pace is None or view is None:
            continue
        for member in view.members:
            for destination in policy.destinations(member):
                if destination.protocol is Protocol.TCP:
                    found.setdefault(destination.endpoint, policy.pace)
    return found


def steer(
    policies: Sequence[PoolPolicy],
    views: Mapping[str, PoolView],
    weights: Mapping[str, Mapping[int, Weighted]],
    dead: Collection[Destination],
    before: Sequence[Steered] = (),
) -> tuple[Steered, ...]:
    """The targets of new flows to the pools' fronts: living members.

    A pool without any keeps the targets it had (`before`): whoever is named last is more likely to serve than
    nobody, as DNS's last good members. So do fronts while their pool is not known yet. Nothing is steered at
    the address and port of a member.
    """
    had = {one.front: one for one in before}
    living = LivingTargets(views, weights)
    found: list[Steered] = []
    members_own = {
        (address, member.port)
        for view in views.values()
        for member in view.members
        for address in member.addresses
    }
    for policy in policies:
        if policy.front is None or policy.front in members_own:
            continue
        view = views.get(policy.handle, PoolView(policy.handle))
        members = view.members or view.unreachable
        protocols = dict.fromkeys((*(member.protocol for member in members), *policy.also))
        if members:
            had = {
                front: one
                for front, one in had.items()
                if front.endpoint != policy.front or front.protocol in protocols
            }
        for protocol in sorted(protocols, key=lambda protocol: protocol.name):
            front = Destination(policy.front[0], protocol, policy.front[1])
            targets = tuple(one for one in living.for_(front, policy) if one.destination not in dead)
            if targets:
                found.append(Steered(front, policy.handle, policy.by_source, targets, policy.clients))
    fronts = {one.front for one in found}
    kept = {policy.front for policy in policies} - members_own
    found += [one for front, one in had.items() if front not in fronts and front.endpoint in kept]
    return tuple(sorted(found, key=lambda one: one.front.sort_key))


def slots_by_source(targets: Sequence[Target]) -> list[Destination]:
    """Which target gets each slot of the clients' hash: weighted rendezvous hashing.

    When a target goes, only its own slots move; every agent with the same targets comes to the same slots.
    """
    best = [(0.0, -1)] * SOURCE_SLOTS
    for index, target in enumerate(targets):
        for slot, score in enumerate(_scores(target.destination.where)):
            if target.weight * score > best[slot][0]:
                best[slot] = target.weight * score, index
    return [targets[index].destination for _, index in best]


def _score(target: Target, slot: int) -> float:
    return target.weight * _scores(target.destination.where)[slot]


@functools.lru_cache(maxsize=8192)
def _scores(where: str) -> array[float]:
    """The scores of an address and port, by whatever transport, for each slot at weight 1.

    Weights change often, and these hashes never.
    """
    return array("d", (_drawn_score(where.encode(), slot) for slot in range(SOURCE_SLOTS)))


def _drawn_score(name: bytes, slot: int) -> float:
    digest = hashlib.blake2b(name + slot.to_bytes(16, "big"), digest_size=8).digest()
    chance = (int.from_bytes(digest, "big") + 1) / (2**64 + 2)
    return -1 / math.log(chance)


def _slot(client: Address) -> int:
    """The slot of a client's address, as nftables' jhash expression computes it."""
    return _jhash(client.packed, SOURCE_SEED) * SOURCE_SLOTS >> 32


def _jhash(data: bytes, seed: int) -> int:
    """Bob Jenkins' hash (lookup3) of 4 or 16 bytes, as Linux has it (include/linux/jhash.h)."""
    a = b = c = 0xDEADBEEF + len(data) + seed & _U32
    if len(data) > 12:
        first = [int.from_bytes(data[at : at + 4], sys.byteorder) for at in (0, 4, 8)]
        a, b, c = (one + word & _U32 for one, word in zip((a, b, c), first, strict=True))
        for turn in (4, 6, 8, 16, 19, 4):
            a = (a - c & _U32) ^ _turned(c, turn)
            c = c + b & _U32
            a, b, c = b, c, a
        data = data[12:]
    a = a + int.from_bytes(data, "little") & _U32
    for turn in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - _turned(b, turn) & _U32
        a, b, c = b, c, a
    return b


def _turned(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _U32
