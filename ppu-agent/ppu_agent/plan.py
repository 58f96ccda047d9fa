"""Which packet goes which way. Pure, but for `Plan.draw`, which leaves a choice to chance.

`plan()` turns views, departed servers and configuration into a `Plan`; nothing else decides. Each mechanism
of `ppu_agent.mechanisms` takes what has its `Way`, and writes that to the kernel.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

from daemon_kit.sip import SIP_PORT
from pool_user import Member, Network, PoolView, Weighted

from ppu_agent.deaths import SILENCE_S, Departed
from ppu_agent.destinations import Address, AddressPort, Destination, destinations_of
from ppu_agent.drawing import Target, drawn, drawn_by_source
from ppu_agent.kernel import Pacing
from rserpool import Protocol

OnDead = Literal["redirect", "refuse", "repeat"]
"""The configuration's word for packets to a dead server."""


class Way(Enum):
    """A way of packets, or of copies of them. Each is the work of one mechanism."""

    REDIRECT = "redirect"
    """To a dead server: set-ups of connections, and all datagrams, go to a living member."""
    ANSWER = "answer"
    """SIP requests over UDP to a dead server: the agent answers them with 503."""
    REFUSE = "refuse"
    """To a dead server: the rest gets a TCP reset, or ICMP unreachable."""
    ABORT = "abort"
    """SCTP to a dead server: goes to a closed port of this host, whose own SCTP aborts it. nftables makes no
    ABORT, and an ICMP error does not end COOKIE-WAIT everywhere."""
    STEER = "steer"
    """To a front: the kernel sends each new flow to a living member."""
    EMBED = "embed"
    """To a front: the agent passes it on to a member's ppe-agent over SCTP."""
    RELAY = "relay"
    """This host's TCP connections to a member, or to a front: the agent stands in between."""
    COPY = "copy"
    """SIP over TCP with a member: goes its way, and the agent gets a copy."""
    PACE = "pace"
    """This host's TCP set-ups to a living member: the kernel repeats them early."""
    GUARD = "guard"
    """Set-ups through this host: the gateway repeats them."""


WAYS: Final[Mapping[tuple[OnDead, Protocol], tuple[Way, ...]]] = {
    ("redirect", Protocol.UDP): (Way.REDIRECT,),
    ("redirect", Protocol.TCP): (Way.REDIRECT, Way.REFUSE),
    ("redirect", Protocol.SCTP): (Way.REDIRECT,),
    ("refuse", Protocol.UDP): (Way.ANSWER, Way.REFUSE),
    ("refuse", Protocol.TCP): (Way.REFUSE,),
    ("refuse", Protocol.SCTP): (Way.ABORT,),
    ("repeat", Protocol.TCP): (Way.REFUSE,),
}
"""The ways of packets to a dead server, by the configuration's action. Each takes what those before leave.

"refuse" over UDP answers SIP: a retransmission that can't be sent ends its call, whereas 503 has the client
go on to the next server. "repeat" refuses connections that the relay does not take: those of other hosts.
"""


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """The configuration of one pool handle: `on_dead` by the transport of the packet.

    `also` are transports at which its members are beside the one they registered. `pace`: how connection
    set-up to its members is paced; None: as the kernel does. `front`: the address and port that stand for the
    pool; `by_source`: a client's address has always the same server. `via_port`: what is sent to the front
    goes to the members' ppe-agents, at this SCTP port. `clients`: other hosts that may use it; None: all.
    `is_sip`: whether its servers speak SIP; None: those at port 5060. `networks`: where its servers may be.
    `beside`: the same pool in other handlespaces, whose members stand in for those of this one; one of them
    has the front.
    """

    handle: str
    on_dead: Mapping[Protocol, OnDead]
    also: tuple[Protocol, ...] = ()
    pace: Pacing | None = None
    front: AddressPort | None = None
    by_source: bool = False
    via_port: int | None = None
    clients: tuple[Network, ...] | None = None
    is_sip: bool | None = None
    networks: tuple[Network, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The pool in every handlespace, its own first."""
        return (self.handle, *self.beside)

    def speaks_sip(self, port: int) -> bool:
        """Whether its servers speak SIP at this port."""
        return port == SIP_PORT if self.is_sip is None else self.is_sip

    def destinations(self, member: Member) -> list[Destination]:
        """Every destination of a member of this pool."""
        return list(destinations_of(member, self.also))

    @property
    def repeats(self) -> bool:
        """Whether this host's TCP connections to its members are relayed."""
        return self.on_dead[Protocol.TCP] == "repeat"


@dataclass(frozen=True, slots=True)
class Treatment:
    """The treatment of packets to one dead destination, for which pool, and why, in words.

    `targets` are empty unless they are redirected. `is_certain`: also connections that are up end; else only
    new ones, and all datagrams, are treated.
    """

    destination: Destination
    action: OnDead
    handle: str
    why: str
    targets: tuple[Target, ...] = ()
    is_certain: bool = True

    @property
    def ways(self) -> tuple[Way, ...]:
        """The ways of its packets."""
        return WAYS[self.action, self.destination.protocol]

    @property
    def spares_connections(self) -> bool:
        """Whether only set-ups are treated."""
        return not self.is_certain and self.destination.protocol is not Protocol.UDP


@dataclass(frozen=True, slots=True)
class Front:
    """A pool's front: new flows to it go to the targets, by weight, or by the client's address."""

    destination: Destination
    policy: PoolPolicy
    targets: tuple[Target, ...]

    @property
    def ways(self) -> tuple[Way, ...]:
        """The ways of its packets. The kernel's own comes into effect where the agent takes none."""
        if self.policy.via_port is not None and self.destination.protocol is not Protocol.SCTP:
            return (Way.EMBED, Way.STEER)
        if self.policy.repeats and self.destination.protocol is Protocol.TCP:
            return (Way.RELAY, Way.STEER)
        return (Way.STEER,)


@dataclass(frozen=True, slots=True)
class PoolDestination:
    """A destination of a member, or of a server that left (`left`), as one pool has it.

    `ways` are those of its packets while it lives. The first pool of the configuration decides.
    """

    destination: Destination
    policy: PoolPolicy
    ways: Collection[Way]
    left: Departed | None = None


@dataclass(frozen=True, slots=True)
class MemberPlaces:
    """The places of a pool's members. They stay while its policy and its view are the same objects."""

    policy: PoolPolicy
    view: PoolView
    places: tuple[PoolDestination, ...]


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
            members = [
                (member, self._weights.get(handle, {}).get(member.identifier, Weighted(0, 1)))
                for handle, member in _members_of(policy, self._views)
            ]
            self._made[key] = _targets_for(destination, policy, members)
        return self._made[key]


def _members_of(policy: PoolPolicy, views: Mapping[str, PoolView]) -> list[tuple[str, Member]]:
    """The living members of a pool in all handlespaces, each with the name of its part; if there is none,
    those that only the agent's own probes found unreachable."""
    parts = [(handle, views[handle]) for handle in policy.parts if handle in views]
    living = [(handle, member) for handle, view in parts for member in view.members]
    return living or [(handle, member) for handle, view in parts for member in view.unreachable]


@dataclass(frozen=True, slots=True)
class Plan:
    """The way of every packet that concerns the agent, at one moment.

    `treatments` and `fronts` are in an order that does not change, `places` in that of the configuration.
    `dead` are the addresses and ports of dead servers, by whatever transport they were registered.
    `is_suspended`: the operator wants nothing done about the dead. `is_last`: the agent stops, nothing new
    comes to it; what it serves yet goes on by the plan before.
    """

    treatments: tuple[Treatment, ...] = ()
    fronts: tuple[Front, ...] = ()
    places: tuple[PoolDestination, ...] = ()
    dead: frozenset[AddressPort] = frozenset()
    targets: LivingTargets = field(default_factory=lambda: LivingTargets({}, {}), compare=False)
    is_suspended: bool = False
    is_last: bool = False
    members: Mapping[str, MemberPlaces] = field(default_factory=dict, compare=False)
    """The members' places by pool handle, for the next plan."""

    def treated(self, way: Way) -> list[Treatment]:
        """The treatments with this way."""
        return [treatment for treatment in self.treatments if way in treatment.ways]

    def fronts_by(self, way: Way, *protocols: Protocol) -> list[Front]:
        """The fronts with this way, of these transports."""
        return [
            front for front in self.fronts if way in front.ways and front.destination.protocol in protocols
        ]

    def places_by(self, way: Way) -> Iterator[PoolDestination]:
        """The places with this way."""
        return (place for place in self.places if way in place.ways)

    @property
    def moves_connections(self) -> bool:
        """Whether the kernel may give connections another server than they ask for."""
        moved = [front.destination for front in self.fronts]
        moved += [treatment.destination for treatment in self.treated(Way.REDIRECT)]
        return any(destination.protocol is not Protocol.UDP for destination in moved)

    def draw(
        self, asked: Destination, policy: PoolPolicy, client: Address, tried: Collection[Destination] = ()
    ) -> Destination | None:
        """A living member of the pool for what `client` sends to `asked`; None: none is left."""
        left = [
            target
            for target in self.targets.for_(asked, policy)
            if target.destination not in tried and target.destination.endpoint not in self.dead
        ]
        if policy.by_source and policy.front == asked.endpoint:
            return drawn_by_source(left, client)
        return drawn(left, random.random())  # noqa: S311 - chance, not a secret


def plan(
    policies: Sequence[PoolPolicy],
    views: Mapping[str, PoolView],
    weights: Mapping[str, Mapping[int, Weighted]],
    dead: Mapping[Destination, Departed],
    departed: Collection[Departed] = (),
    before: Plan | None = None,
    *,
    is_own: Callable[[Address], bool] = lambda address: False,
    is_suspended: bool = False,
) -> Plan:
    """Return the way of each packet.

    `weights` are those of each pool's members, by PE identifier; `departed` the servers that left, the `dead`
    among them; `before` the last plan. `is_own` says which addresses are this host's: what is sent to them is
    never treated.
    """
    before = before or Plan()
    targets = LivingTargets(views, weights)
    own = {address for address in {server.address for server in dead} if is_own(address)}
    treated = (
        {} if is_suspended else {server: left for server, left in dead.items() if server.address not in own}
    )
    members = _member_places(policies, views, before.members)
    return Plan(
        tuple(
            sorted(
                _treatments(policies, views, treated, targets),
                key=lambda treatment: treatment.destination.sort_key,
            )
        ),
        _fronts(policies, views, dead, targets, before.fronts),
        tuple(_places(policies, members, departed)),
        frozenset(server.endpoint for server in dead),
        targets,
        is_suspended,
        members=members,
    )


def _treatments(
    policies: Sequence[PoolPolicy],
    views: Mapping[str, PoolView],
    dead: Mapping[Destination, Departed],
    targets: LivingTargets,
) -> Collection[Treatment]:
    """A destination is treated as the first pool of the configuration says that it left and that can lose it.

    The pool's further transports (`also`) are treated only if it had answered as a member: another service at
    the same port may live.
    """
    if not dead:
        return ()
    alive = {
        destination.endpoint
        for view in views.values()
        for member in view.members
        for destination in destinations_of(member)
    }
    found: dict[Destination, Treatment] = {}
    for policy in policies:
        view = views.get(policy.handle)
        if view is None or not view.known or view.stale_since_s is not None:
            continue
        if not any(views[handle].members for handle in policy.parts if handle in views):
            continue
        for departed in dead.values():
            if policy.handle not in departed.pools or departed.destination.endpoint in alive:
                continue
            also = policy.also if departed.was_heard else ()
            for protocol in dict.fromkeys((departed.destination.protocol, *also)):
                destination = Destination(departed.destination.address, protocol, departed.destination.port)
                if destination not in found:
                    found[destination] = _treat(destination, policy, targets, departed)
    return found.values()


def _treat(
    destination: Destination, policy: PoolPolicy, living: LivingTargets, departed: Departed
) -> Treatment:
    action = policy.on_dead[destination.protocol]
    why = f"out of the pool {policy.handle}, and it does not answer the agent's own probe: {departed.words}"
    is_certain = departed.is_certain
    if not is_certain and destination.protocol is not Protocol.UDP:
        why += f"; connections that are up go on until it was silent for {SILENCE_S:g} s"
    targets = () if action == "refuse" else living.for_(destination, policy)
    if action != "refuse" and not targets:
        action, why = "refuse", f"{why}; no living member has such an address: refused"
    return Treatment(destination, action, policy.handle, why, targets, is_certain)


def _targets_for(
    destination: Destination, policy: PoolPolicy, members: Iterable[tuple[Member, Weighted]]
) -> tuple[Target, ...]:
    """Those with the same transport and IP version as `destination`, and the best priority that lives.

    Spares (standby) are taken only when there is nobody else.
    """
    candidates: list[tuple[bool, int, Destination, int]] = []
    for member, weighted in members:
        fitting = [
            other
            for other in policy.destinations(member)
            if other.protocol is destination.protocol and other.address.version == destination.address.version
        ]
        if fitting:
            candidates.append((weighted.standby, weighted.priority, fitting[0], weighted.weight))
    best = min((candidate[:2] for candidate in candidates), default=None)
    chosen = {
        destination: weight
        for standby, priority, destination, weight in candidates
        if (standby, priority) == best
    }
    return tuple(
        Target(server, chosen[server]) for server in sorted(chosen, key=lambda server: server.sort_key)
    )


def _fronts(
    policies: Sequence[PoolPolicy],
    views: Mapping[str, PoolView],
    dead: Collection[Destination],
    living: LivingTargets,
    before: Sequence[Front],
) -> tuple[Front, ...]:
    """The targets of new flows to the pools' fronts: living members.

    A pool without any keeps the targets it had (`before`): whoever is named last is more likely to serve than
    nobody, as DNS's last good members. So do fronts while their pool is not known yet. Nothing is steered at
    the address and port of a member.
    """
    had = {front.destination: front for front in before}
    found: list[Front] = []
    wanted = {policy.front for policy in policies if policy.front is not None}
    if not wanted:
        return ()
    members_own = {
        (address, member.port)
        for view in views.values()
        for member in view.members
        for address in member.addresses
    }
    for policy in policies:
        if policy.front is None or policy.front in members_own:
            continue
        members = [member for _, member in _members_of(policy, views)]
        protocols = dict.fromkeys((*(member.protocol for member in members), *policy.also))
        if members:
            had = {
                destination: front
                for destination, front in had.items()
                if destination.endpoint != policy.front or destination.protocol in protocols
            }
        for protocol in sorted(protocols, key=lambda protocol: protocol.name):
            destination = Destination(policy.front[0], protocol, policy.front[1])
            targets = tuple(
                target for target in living.for_(destination, policy) if target.destination not in dead
            )
            if targets:
                found.append(Front(destination, policy, targets))
    given = {front.destination for front in found}
    kept = {policy.front: policy for policy in policies if policy.front not in members_own}
    found += [
        Front(destination, kept[destination.endpoint], front.targets)
        for destination, front in had.items()
        if destination not in given and destination.endpoint in kept
    ]
    return tuple(sorted(found, key=lambda front: front.destination.sort_key))


def _member_places(
    policies: Sequence[PoolPolicy], views: Mapping[str, PoolView], before: Mapping[str, MemberPlaces]
) -> Mapping[str, MemberPlaces]:
    """Those of a pool that did not change are taken over: a plan is made each second, in the event loop."""
    found: dict[str, MemberPlaces] = {}
    for policy in policies:
        view, last = views.get(policy.handle), before.get(policy.handle)
        if view is None:
            continue
        if last is None or last.policy is not policy or last.view is not view:
            destinations = (
                destination for member in view.members for destination in policy.destinations(member)
            )
            places = tuple(PoolDestination(each, policy, _ways(policy, each)) for each in destinations)
            last = MemberPlaces(policy, view, places)
        found[policy.handle] = last
    return found


def _places(
    policies: Sequence[PoolPolicy], members: Mapping[str, MemberPlaces], departed: Collection[Departed]
) -> Iterator[PoolDestination]:
    for policy in policies:
        if policy.handle in members:
            yield from members[policy.handle].places
        for left in departed:
            if policy.handle in left.pools:
                for destination in policy.destinations(left.at_destination):
                    ways = _ways(policy, destination, has_left=True)
                    yield PoolDestination(destination, policy, ways, left)


def _ways(policy: PoolPolicy, destination: Destination, *, has_left: bool = False) -> tuple[Way, ...]:
    ways: list[Way] = []
    if destination.protocol is Protocol.TCP:
        if policy.repeats:
            ways.append(Way.RELAY)
        elif policy.via_port is None and policy.speaks_sip(destination.port):
            ways.append(Way.COPY)
        if policy.pace is not None and not has_left:
            ways.append(Way.PACE)
    return (*ways, Way.GUARD) if destination.protocol is not Protocol.UDP else ()
