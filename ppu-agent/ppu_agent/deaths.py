"""Which members that left their pools are dead. Sans-IO: `now` is monotonic seconds, never decreasing.

Out of the pool is not dead: a sidecar that is restarted, an operator's drain and a lying registrar take a
server out that serves on. So a destination counts as dead only while three things hold:

1. no pool lists its address and port, by any transport;
2. a pool it left is vouched for by a settled registrar and still has a living member;
3. the agent's own probe found nobody there: refused, or silent within the probe's time. Silence counts only
   if this agent heard the destination answer while it was a member (`ppu_agent.member_answers`): a service
   that never answers such a question may live.

| state  | the member                                                                       |
|--------|----------------------------------------------------------------------------------|
| OUT    | left; its first probe is under way, tells nothing, or a spared one was silent once |
| SPARED | left, and answers the probe: drained, or its sidecar is away                     |
| DEAD   | left, and the probe found nobody                                                 |

What is listed again is forgotten at once, in whatever state.

New flows leave a dead server at once: they can come back. A connection that ends can't. So a death is certain
only after a refusal, or when the server was silent for 2 s (`Departed.is_certain`). A cable that is out for a
moment, or a network that loses packets, ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from daemon_kit.finding import Finding, Life
from pool_user import BeliefChange, Member, Network, PoolView, RememberedPool

from ppu_agent.destinations import Address, Destination

ASK_DEAD_EVERY_S = 0.25
"""A dead one is asked again: its server may be back before its sidecar is."""
ASK_SPARED_EVERY_S = 0.5
"""A server that serves on outside its pool is asked again: a drained server is often stopped next."""
MOST_ASKED_PER_S = 200
"""If many left, each is asked less often."""
SILENCE_S = 2.0
"""Connections to a dead server end when it was silent for this time, over several probes."""
ASK_UNTOLD_EVERY_S = 10.0
"""The longest time between two probes that tell nothing; they begin as often as those of a dead member."""
REFUSAL_HOLDS_S = 5.0
"""A refusal counts this long where silence tells nothing: Linux sends one ICMP error a second to a host."""
REMEMBERED_S = 900.0
"""A member that left is watched for this time: clients that are told nothing new keep on sending to it.

A dead one that this agent heard while it was a member stays for longer: see `Departed.stays`.
"""
MOST_REMEMBERED = 1000
"""Places that left, of all pools; the others are forgotten, and left alone: see `_least_needed()`."""
MOST_DEAD_BEFORE_OTHERS = MOST_REMEMBERED // 2
"""The number of dead ones that are kept before those that may live: the memory has room for the next that
dies."""


class State(Enum):
    """The state of a destination that left every pool."""

    OUT = "out"
    SPARED = "spared"
    DEAD = "dead"


class Input(Enum):
    """The finding of the probe of a destination."""

    ANSWERED = "answered"
    REFUSED = "refused"
    SILENT = "silent"
    UNTOLD = "untold"
    """Silent, and this agent never heard it answer while it was a member."""
    CONFIRMED = "confirmed"
    """The belief's own probes (`verify`) had concluded that the member is unreachable."""


TRANSITIONS: Mapping[tuple[State, Input], State] = {
    (State.OUT, Input.ANSWERED): State.SPARED,
    (State.OUT, Input.REFUSED): State.DEAD,
    (State.OUT, Input.SILENT): State.DEAD,
    (State.OUT, Input.CONFIRMED): State.DEAD,
    (State.SPARED, Input.REFUSED): State.DEAD,
    (State.SPARED, Input.SILENT): State.OUT,  # one lost probe of a server that serves on means nothing
    (State.DEAD, Input.ANSWERED): State.SPARED,
    (State.DEAD, Input.UNTOLD): State.OUT,  # refused before: now a service may be there that is asked in vain
}
"""An input that is not in here changes nothing."""
_INPUTS: Mapping[Life, Input] = {
    Life.ALIVE: Input.ANSWERED,
    Life.UNWELL: Input.ANSWERED,
    Life.REFUSED: Input.REFUSED,
    Life.SILENT: Input.SILENT,
}
_NOT_ASKED = Finding(Life.UNKNOWN)
_CONFIRMED = Finding(Life.SILENT, "unreachable for the agent's own probes")


@dataclass(slots=True, eq=False)
class Departed:
    """A member's destination that no pool lists any more.

    `pools` are those it left, in the order it left them. `finding` is of the last probe.
    """

    destination: Destination
    member: Member
    pools: dict[str, None]
    left_at_s: float
    state: State = State.OUT
    state_since_s: float = 0.0
    finding: Finding = _NOT_ASKED
    due_s: float = 0.0
    refused_at_s: float = float("-inf")
    was_heard: bool = False
    """Whether this agent heard it answer the probe's question while it was a member."""
    asked_at_s: float = float("-inf")
    silent_since_s: float | None = None
    """When the first probe began of those that heard nothing since the last answer."""
    is_certain: bool = False
    """Whether what is up with it may be ended, should it be dead."""

    @property
    def stays(self) -> bool:
        """Whether no time forgets it: it is dead, and was a server of its pool. Clients with lists of their
        own name it for ever. A place that a stranger named, and left, is forgotten."""
        return self.state is State.DEAD and self.was_heard

    @property
    def words(self) -> str:
        """The finding of its last probe, for people."""
        return self.finding.words

    @property
    def at_destination(self) -> Member:
        """The member at this one of its addresses."""
        return _at(self.member, self.destination)


class DepartedServers:
    """Follows the members of all pools. `take` each change, ask what is `due`, give it each `Finding`.

    `was_heard` says whether a destination that left had answered the probe's question as a member.
    """

    def __init__(self, was_heard: Callable[[Departed], bool]) -> None:
        self._was_heard = was_heard
        self._listed: dict[str, dict[Destination, Member]] = {}
        self._departed: dict[Destination, Departed] = {}
        self._under_way: set[Destination] = set()
        self._views: Mapping[str, PoolView] = {}
        self.beside: Mapping[str, tuple[str, ...]] = {}
        """By pool, the same pool in other handlespaces."""
        self._listed_endpoints: frozenset[tuple[Address, int]] = frozenset()

    @property
    def departed(self) -> Collection[Departed]:
        """Every destination that left, whatever its state."""
        return self._departed.values()

    def state(self, destination: Destination) -> Departed | None:
        """The record of a destination that left; None of all others."""
        return self._departed.get(destination)

    def take(self, change: BeliefChange, now: float) -> bool:
        """Take the belief's change. Return whether another destination departed, came back or died."""
        before = {destination: departed.state for destination, departed in self._departed.items()}
        self._views = change.views
        for handle, destination, member in list(self._take(change)):
            self._leave(handle, destination, member, now)
        for listed in self._listed.values():
            for destination in self._departed.keys() & listed.keys():
                del self._departed[destination]
        self._listed_endpoints = frozenset(
            destination.endpoint for listed in self._listed.values() for destination in listed
        )
        self.advance(now)
        return before != {destination: departed.state for destination, departed in self._departed.items()}

    def advance(self, now: float) -> None:
        """Forget those that left too long ago, and take the word of the belief's own probes."""
        self._forget(now)
        for view in self._views.values():
            for member in view.unreachable:
                for departed in self._of(member):
                    if departed.state is State.OUT and departed.was_heard:
                        departed.silent_since_s = (
                            now if departed.silent_since_s is None else departed.silent_since_s
                        )
                        self._step(departed, Input.CONFIRMED, _CONFIRMED, now)

    def remember(self, remembered: RememberedPool) -> None:
        """Take what an agent before knew of a pool: who was in it, and who had left.

        If a settled registrar does not list them, they are asked whether they are dead.
        """
        self._listed[remembered.handle] = {
            Destination(address, member.protocol, member.port): member
            for member in (*remembered.recent, *remembered.members)
            for address in member.addresses
        }

    def remembered(self, is_answering: Callable[[str, Destination], bool]) -> dict[str, PoolView]:
        """The knowledge of each pool for the next agent: who was in it, and who left.

        `recent` has the destinations that answered as members in the last minutes, `members` all others.
        """
        found: dict[str, PoolView] = {}
        for handle, listed in self._listed.items():
            known = {destination: _at(member, destination) for destination, member in listed.items()}
            left = [departed for departed in self._departed.values() if handle in departed.pools]
            known |= {departed.destination: departed.at_destination for departed in left}
            heard = {departed.destination for departed in left if departed.was_heard}
            heard |= {destination for destination in listed if is_answering(handle, destination)}
            found[handle] = PoolView(
                handle,
                tuple(member for destination, member in known.items() if destination not in heard),
                recent=tuple(member for destination, member in known.items() if destination in heard),
                known=True,
            )
        return found

    def restrict(
        self, accept: Mapping[str, Collection[Network]], ports: Mapping[str, Collection[int]] | None = None
    ) -> None:
        """Forget what these pools, by handle, do not accept in these networks: the configuration changed.

        Whether those that stay were heard is found out anew: their pools may ask another question now.
        `ports`: those that each pool accepts; without, or empty: any.
        """
        ports = ports or {}

        def is_in(handle: str, destination: Destination) -> bool:
            allowed = ports.get(handle)
            return (not allowed or destination.port in allowed) and _is_in(
                destination, accept.get(handle, ())
            )

        self._listed = {
            handle: {
                destination: member for destination, member in listed.items() if is_in(handle, destination)
            }
            for handle, listed in self._listed.items()
            if handle in accept
        }
        for departed in list(self._departed.values()):
            departed.pools = {
                handle: None for handle in departed.pools if is_in(handle, departed.destination)
            }
            departed.was_heard = self._was_heard(departed)
            if not departed.pools:
                del self._departed[departed.destination]

    def is_listed(self, destination: Destination) -> bool:
        """Whether some pool has a member at this address and port, by whatever transport."""
        return destination.endpoint in self._listed_endpoints

    def due(self, now: float, most: int = MOST_REMEMBERED) -> list[Departed]:
        """Return whom to probe now, `most` of them; each must be told of by `take_finding()` once."""
        found = sorted(
            (departed for departed in self._waiting if departed.due_s <= now),
            key=lambda departed: departed.due_s,
        )[:most]
        self._under_way.update(departed.destination for departed in found)
        for departed in found:
            departed.asked_at_s = now
        return found

    @property
    def next_due_s(self) -> float:
        """When `due()` may have somebody; infinity for never."""
        return min((departed.due_s for departed in self._waiting), default=float("inf"))

    def take_finding(self, destination: Destination, finding: Finding, now: float) -> bool:
        """Take what a probe found. Return whether the destination's state or its certainty changed."""
        self._under_way.discard(destination)
        departed = self._departed.get(destination)
        if departed is None:
            return False
        before, was_certain = departed.state, departed.is_certain
        departed.was_heard = departed.was_heard or self._was_heard(departed)
        found = _INPUTS.get(finding.life)
        if found is Input.REFUSED:
            departed.refused_at_s = now
        if found is Input.SILENT and not departed.was_heard:
            found = Input.UNTOLD if now >= departed.refused_at_s + REFUSAL_HOLDS_S else None
            finding = replace(finding, doubt="this agent did not hear it answer while it was a member")
        if found is None:
            departed.finding = finding
        else:
            self._weigh(departed, found, now)
            self._step(departed, found, finding, now)
        every_s = ASK_SPARED_EVERY_S if departed.state is State.SPARED else ASK_DEAD_EVERY_S
        if departed.state is State.OUT:
            every_s = min(ASK_UNTOLD_EVERY_S, max(every_s, (now - departed.state_since_s) / 4))
        every_s = max(every_s, len(self._departed) / MOST_ASKED_PER_S)
        departed.due_s = now if departed.state is State.OUT and before is not State.OUT else now + every_s
        return departed.state is not before or departed.is_certain is not was_certain

    def dead(self) -> dict[Destination, Departed]:
        """The destinations that count as dead now: see the rules at the top of this file."""
        return {
            destination: departed
            for destination, departed in self._departed.items()
            if departed.state is State.DEAD
            and not self.is_listed(destination)
            and any(self.can_lose(handle) for handle in departed.pools)
        }

    def can_lose(self, handle: str) -> bool:
        """Whether what left this pool may be treated as dead: it is vouched for, and not empty in all its
        handlespaces."""
        view = self._views.get(handle)
        if view is None or not view.known or view.stale_since_s is not None:
            return False
        others = (self._views.get(name) for name in self.beside.get(handle, ()))
        return bool(view.members) or any(other is not None and other.members for other in others)

    # Within

    @property
    def _waiting(self) -> Iterator[Departed]:
        return (
            departed
            for destination, departed in self._departed.items()
            if destination not in self._under_way and not self.is_listed(destination)
        )

    def _take(self, change: BeliefChange) -> Iterator[tuple[str, Destination, Member]]:
        """Take who is listed in the pools that changed, and yield who is not any more.

        A pool without a settled registrar loses nobody: nobody vouches for what is said about it. So those
        that leave it meanwhile, and those of before a restart, are compared with the first view that counts.
        """
        for handle, step in change.pools.items():
            view, before = step.after, self._listed.get(handle, {})
            listed = {
                Destination(address, member.protocol, member.port): member
                for member in view.members
                for address in member.addresses
            }
            if not view.known or view.stale_since_s is not None:
                self._listed[handle] = before | listed
                continue
            self._listed[handle] = listed
            for destination, member in before.items():
                if destination not in listed:
                    yield handle, destination, member

    def _leave(self, handle: str, destination: Destination, member: Member, now: float) -> None:
        departed = self._departed.get(destination)
        if departed is None:
            departed = Departed(destination, member, {handle: None}, now, state_since_s=now, due_s=now)
            departed.was_heard = self._was_heard(departed)
            self._departed[destination] = departed
        else:
            departed.pools[handle] = None

    def _of(self, member: Member) -> Iterator[Departed]:
        for address in member.addresses:
            departed = self._departed.get(Destination(address, member.protocol, member.port))
            if departed is not None:
                yield departed

    def _step(self, departed: Departed, found: Input, finding: Finding, now: float) -> None:
        departed.finding = finding
        after = TRANSITIONS.get((departed.state, found), departed.state)
        if after is not departed.state:
            departed.state, departed.state_since_s = after, now

    def _weigh(self, departed: Departed, found: Input, now: float) -> None:
        """Decide whether a dead one would be dead for certain."""
        match found:
            case Input.SILENT:
                if departed.silent_since_s is None:
                    departed.silent_since_s = departed.asked_at_s
                departed.is_certain = departed.is_certain or now - departed.silent_since_s >= SILENCE_S
            case Input.REFUSED:
                departed.is_certain = True
            case _:
                departed.silent_since_s, departed.is_certain = None, False

    def _forget(self, now: float) -> None:
        for destination in [
            destination
            for destination, departed in self._departed.items()
            if now - departed.left_at_s > REMEMBERED_S and not departed.stays
        ]:
            del self._departed[destination]
        excess = len(self._departed) - MOST_REMEMBERED
        if excess > 0:
            for departed in self._least_needed()[:excess]:
                del self._departed[departed.destination]

    def _least_needed(self) -> list[Departed]:
        """Those that left, in the order in which they are forgotten; the oldest of a kind first.

        Anybody who may register can have thousands leave. Those that this agent never heard go first.
        """
        strangers = [departed for departed in self._departed.values() if not departed.was_heard]
        dead = [departed for departed in self._departed.values() if departed.stays]
        others = [
            departed for departed in self._departed.values() if departed.was_heard and not departed.stays
        ]
        too_many = max(0, len(dead) - MOST_DEAD_BEFORE_OTHERS)
        return [*strangers, *dead[:too_many], *others, *dead[too_many:]]


def _at(member: Member, destination: Destination) -> Member:
    """The member at this one of its addresses."""
    is_there = member.addresses == (destination.address,)
    return member if is_there else replace(member, addresses=(destination.address,))


def _is_in(destination: Destination, networks: Collection[Network]) -> bool:
    return any(destination.address in network for network in networks)
