"""Proofs of a keyed pool, vanished members, and servers that are registered twice.

In a keyed pool (`PoolRules.keys`) an element counts only when its identifier proves its address and port
(`rserpool.identity`). The hook into the belief has three parts: `Identities.genuine` stands before all that
is said of an element, `Identities.has_left` takes out the members whose sidecar said so, and
`VanishedMembers` names the members that left without that word.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address

from pool_user.belief.rules import (
    ANSWERED_LATELY_S,
    FAREWELL_HEEDED_S,
    FAREWELL_KEPT_S,
    LEFT_KEPT_S,
    VANISHED_AFTER_S,
    VANISHED_KEPT_S,
)
from pool_user.cause import Cause, Code
from pool_user.views import BeliefEvent, Member
from rserpool import Guesses, PoolElement, PoolKey, Protocol, Proven, Transport, drained_for_s, prove

_MOST_PROVEN = 20_000
_MOST_FAREWELLS = 1_000
_MOST_TRIED = 8
"""Addresses of one element that are tried: an SCTP one may name thousands."""


_Server = tuple[Protocol, IPv4Address | IPv6Address, int]


class Identities:
    """The proofs in one pool: what was checked, who said that it leaves, and who guesses."""

    def __init__(self, handle: bytes) -> None:
        self.handle = handle
        """The pool handle as registrars know it."""
        self._keys: Sequence[PoolKey] = ()
        self._proven: dict[int, tuple[Transport, Proven]] = {}
        self._servers: dict[_Server, None] = {}
        """The servers that proved something."""
        self._guesses = Guesses()
        self._left: dict[int, tuple[float, bool]] = {}
        """When a member said that it leaves, and whether its home registrar told of that."""

    def genuine(
        self, element: PoolElement, keys: Sequence[PoolKey], teller: int, now: float
    ) -> tuple[Proven | None, PoolElement]:
        """Return what the identifier proves, and the element with the proven address only.

        `teller` is the registrar that tells of the element. None: it proves nothing, or too much of what this
        registrar tells of that home, address and port proved nothing. The word of other registrars still
        counts, and so does a server that proved something before: guesses keep it not out.
        """
        if keys != self._keys:
            self._keys = keys
            self._proven.clear()
            self._guesses = Guesses()
        transport = element.user_transport
        known = self._proven.get(element.identifier)
        if known is not None and known[0] == transport:
            proven: Proven | None = known[1]
        else:
            proven = self._prove(element, teller, now)
        if proven is None:
            return None, element
        if len(transport.addresses) > 1:
            element = replace(element, user_transport=replace(transport, addresses=(proven.address,)))
        return proven, element

    def _prove(self, element: PoolElement, teller: int, now: float) -> Proven | None:
        transport = element.user_transport
        if not transport.addresses:
            return None
        addresses = transport.addresses[:_MOST_TRIED]
        source = teller, element.home_registrar, addresses[0], transport.port
        is_ignored = self._guesses.is_ignored(source, now)
        servers = {(transport.protocol, address, transport.port) for address in addresses}
        if is_ignored and self._servers.keys().isdisjoint(servers):
            return None
        proven = prove(element.identifier, self.handle, replace(transport, addresses=addresses), self._keys)
        if proven is None:
            if not is_ignored:
                self._guesses.failed(source, element.identifier, now)
            return None
        server = transport.protocol, proven.address, transport.port
        if is_ignored and (proven.is_leaving or server not in self._servers):
            return None  # who guesses for long enough hits; that shows no stranger, and takes nobody out
        if len(self._proven) >= _MOST_PROVEN:
            self._proven.clear()
            self._servers.clear()
        self._proven[element.identifier] = transport, proven
        self._servers[server] = None
        return proven

    def remember(self, member: Member) -> None:
        """The server of the member proved itself before a restart."""
        self._servers[member.protocol, member.addresses[0], member.port] = None

    def left(self, member: int, now: float, *, by_home: bool) -> bool:
        """Take in that the member said that it leaves; `by_home`: its home registrar tells of that. Return
        whether that is news."""
        while self._left and now - self._left[first := next(iter(self._left))][0] >= LEFT_KEPT_S:
            del self._left[first]
        since_s, was_by_home = self._left.get(member, (now, False))
        is_news = member not in self._left or (by_home and not was_by_home)
        self._left[member] = since_s, by_home or was_by_home
        return is_news

    def has_left(self, identifier: int, now: float) -> bool:
        """Whether the member said lately that it leaves; it comes back under another identifier."""
        left = self._left.get(identifier)
        return left is not None and now - left[0] < LEFT_KEPT_S

    def is_withdrawn(self, identifier: int, now: float, *, is_confirmed: bool) -> bool:
        """Whether that word holds against registrars that list the member. `is_confirmed`: its home does.

        A registrar that lies can repeat a word of an earlier stay under the same identifier. So the word that
        another than the home tells counts only when the home lists the member no more.
        """
        _, is_by_home = self._left.get(identifier, (0.0, False))
        return self.has_left(identifier, now) and (is_by_home or not is_confirmed)


Place = tuple[object, ...]


def place_of(member: Member) -> Place:
    """The place of the server: members at the same place are the same server."""
    return member.protocol, member.addresses, member.port


class WantedMembers:
    """The PEs that are in by the word of the registrars and by `accept`, and which of them are at the same
    place: kept up with each change, so that a look-up costs nothing."""

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        """By identifier."""
        self._at: dict[Place, set[int]] = {}
        self._several: set[Place] = set()

    def add(self, member: Member) -> None:
        """A member is wanted."""
        self.members[member.identifier] = member
        there = self._at.setdefault(place_of(member), set())
        there.add(member.identifier)
        if len(there) > 1:
            self._several.add(place_of(member))

    def remove(self, identifier: int) -> None:
        """A PE is not wanted any more."""
        member = self.members.pop(identifier, None)
        if member is None:
            return
        place = place_of(member)
        there = self._at.get(place, set())
        there.discard(identifier)
        if len(there) < 2:
            self._several.discard(place)
        if not there:
            self._at.pop(place, None)

    def others(self, member: Member) -> bool:
        """Whether a wanted member of another identifier is at the same place."""
        there = self._at.get(place_of(member), set())
        return bool(there - {member.identifier})

    def surplus(self, shown: Collection[int]) -> Iterable[tuple[int, int]]:
        """The members beyond the first of each place, each with the first: a shown one, or the lowest."""
        for place in self._several:
            there = sorted(self._at[place], key=lambda identifier: (identifier not in shown, identifier))
            yield from ((identifier, there[0]) for identifier in there[1:])


@dataclass(slots=True)
class _Gone:
    member: Member
    since_s: float
    listed_s: float
    """When a settled registrar listed it last."""
    answers: bool = False
    is_told: bool = False


@dataclass(slots=True)
class _Farewell:
    identifier: int
    heard_s: float
    home: int
    planned_s: float | None
    is_over: bool = False
    """Whether the server is in again."""

    @property
    def ends_s(self) -> float:
        """When the drain is over; infinite: it has no end."""
        return math.inf if self.planned_s is None else self.heard_s + self.planned_s


class Farewells:
    """The servers that were drained lately: the place, home registrar and time of their farewells
    (`rserpool.drain`).

    A farewell counts for FAREWELL_HEEDED_S after it was heard first: it is renewed and told again while it
    stays. It counts no more once its server is in again, and may die.
    """

    def __init__(self) -> None:
        self._latest: dict[_Server, _Farewell] = {}
        """The oldest first."""

    def note(self, element: PoolElement, now: float) -> None:
        """Take a farewell that its home registrar tells."""
        transport = element.user_transport
        said = _Farewell(element.identifier, now, element.home_registrar, drained_for_s(element.life_ms))
        for address in transport.addresses[:_MOST_TRIED]:
            server = transport.protocol, address, transport.port
            known = self._latest.get(server)
            if known is None or known.identifier != said.identifier:
                self._latest.pop(server, None)
                self._latest[server] = said
        while self._latest:
            first = next(iter(self._latest))
            kept = self._latest[first]
            lasts = now < kept.heard_s + FAREWELL_KEPT_S or (not kept.is_over and now < kept.ends_s)
            if len(self._latest) <= _MOST_FAREWELLS and lasts:
                break
            del self._latest[first]

    def returned(self, member: Member) -> None:
        """A member came in: its server's farewell is over."""
        for address in member.addresses:
            farewell = self._latest.get((member.protocol, address, member.port))
            if farewell is not None:
                farewell.is_over = True

    def cause_of(self, member: Member, now: float) -> Cause | None:
        """The cause of a member that leaves now; None if it was not drained at its own home registrar."""
        for address in member.addresses:
            said = self._latest.get((member.protocol, address, member.port))
            if said is None or said.is_over or said.home != member.home_registrar:
                continue
            if now - said.heard_s < FAREWELL_HEEDED_S:
                return Cause(Code.DRAINED, planned_s=said.planned_s)
        return None

    def lasting(self, member: Member, left_s: float, now: float) -> Cause | None:
        """The cause of a member that was out at `left_s` by something else, and whose drain lasts still."""
        for address in member.addresses:
            said = self._latest.get((member.protocol, address, member.port))
            if said is None or said.is_over or said.home != member.home_registrar:
                continue
            if said.ends_s > now:
                planned_s = None if said.planned_s is None else said.ends_s - left_s
                return Cause(Code.DRAINED, planned_s=planned_s)
        return None


class VanishedMembers:
    """Members of a keyed pool that are gone without a word of their sidecar.

    A host that removes others' elements, or takes their identifiers, makes them vanish. So the backend's own
    probe asks each: a member that answers is in again after VANISHED_AFTER_S, for VANISHED_KEPT_S at most. If
    its home hides it while others list it, it stays for as long. A member that does not answer, or can't be
    asked, is out from the start. A crowd is asked while the registrars are questioned about it, and not only
    after that.

    If a server answered, registered anew and is gone again within ANSWERED_LATELY_S, somebody takes it out
    again and again. It stays at once then, under its latest identifier, until a probe fails.
    """

    def __init__(self) -> None:
        self._gone: dict[int, _Gone] = {}
        self._answered_s: dict[Place, float] = {}
        """When servers registered anew that had answered; the oldest first."""
        self._now = float("-inf")

    def __bool__(self) -> bool:
        return bool(self._gone)

    @property
    def members(self) -> Mapping[int, Member]:
        """Those that are asked, by identifier."""
        return {identifier: gone.member for identifier, gone in self._gone.items()}

    def update(
        self, missing: Iterable[Member], listed: Container[int], over: Iterable[int], now: float
    ) -> None:
        """Take in the members `missing` from now on and those that settled registrars list. Forget those that
        are `over`: in again, withdrawn by their sidecar, or registered anew."""
        self._now = now
        for member in missing:
            if member.identifier not in self._gone:
                is_back = now < self._answered_s.get(place_of(member), float("-inf")) + ANSWERED_LATELY_S
                since_s = now - VANISHED_AFTER_S if is_back else now
                self._gone[member.identifier] = _Gone(member, since_s, now, answers=is_back)
        for identifier in over:
            gone = self._gone.pop(identifier, None)
            if gone is not None and gone.answers:
                place = place_of(gone.member)
                self._answered_s.pop(place, None)
                self._answered_s[place] = now
        while self._answered_s:
            place = next(iter(self._answered_s))
            if now < self._answered_s[place] + ANSWERED_LATELY_S:
                break
            del self._answered_s[place]
        for identifier, gone in list(self._gone.items()):
            if identifier in listed:
                gone.listed_s = now
            if now >= gone.listed_s + VANISHED_KEPT_S:
                del self._gone[identifier]

    def probed(self, member: Member, answers: bool) -> bool:
        """The probe came to a conclusion. Return whether it concerns a vanished member."""
        gone = self._gone.get(member.identifier)
        if gone is None:
            return False
        gone.answers = answers
        return True

    def kept(
        self, handle: str, questioned: Container[int], now: float
    ) -> tuple[list[Member], list[BeliefEvent]]:
        """The members that are in by their own answer alone, and what is to be told of them. The `questioned`
        are in anyway."""
        answering = [
            gone
            for identifier, gone in self._gone.items()
            if gone.answers and now >= gone.since_s + VANISHED_AFTER_S and identifier not in questioned
        ]
        cause = Cause(Code.VANISHED, count=round(VANISHED_KEPT_S))
        events = [
            BeliefEvent(now, "vanished", handle, gone.member.identifier, cause, gone.member)
            for gone in answering
            if not gone.is_told
        ]
        for gone in answering:
            gone.is_told = True
        return [gone.member for gone in answering], events

    @property
    def next_deadline_s(self) -> float | None:
        """When time alone changes something."""
        times = [
            time_s
            for gone in self._gone.values()
            for time_s in (gone.since_s + VANISHED_AFTER_S, gone.listed_s + VANISHED_KEPT_S)
            if time_s > self._now
        ]
        return min(times, default=None)
