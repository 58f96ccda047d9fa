"""The belief of a pool user about its pools, as plain values.

The belief (`pool_user.belief`) makes them; answers, status and the last-known-good file read them. They hold
no rules of their own, so that every reader sees the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from itertools import compress
from operator import is_not

from pool_user.cause import Cause, Code
from rserpool import Policy, Protocol

_GONE = Cause(Code.GONE)
_UNKNOWN_S = float("-inf")

ServerAddress = tuple[IPv4Address | IPv6Address, int]
"""An address and a port."""
TransportAddresses = tuple[tuple[IPv4Address | IPv6Address, ...], int]
"""The addresses and the port of a pool element."""


@dataclass(frozen=True, slots=True)
class Member:
    """A pool element that is in: clients may be sent to it.

    `addresses` are those of its user transport, already filtered by the pool's `accept` networks and never
    empty: one for TCP and UDP, several for a multihomed SCTP element. `since_s` (monotonic) is when it came
    in; one that was only out of sight for a moment keeps its old value. `stale` means that it is shown from
    memory: no registrar vouches for it at present. `share`, above 0 and below 1, is the part of the calls
    that an administrator gives it; None: its weight decides. `handlespace` is the name of the one whose
    registrars vouch for it, empty where the only one has no name.
    """

    identifier: int
    home_registrar: int
    addresses: tuple[IPv4Address | IPv6Address, ...]
    port: int
    protocol: Protocol
    policy: Policy
    since_s: float
    stale: bool = False
    share: float | None = None
    handlespace: str = ""

    @property
    def transport_addresses(self) -> TransportAddresses:
        """The server's place: other addresses or another port are another server, also under the same
        identifier."""
        return self.addresses, self.port

    @property
    def server_address(self) -> ServerAddress:
        """The address and port that stand for the server: the first address of a multihomed one."""
        return self.addresses[0], self.port


@dataclass(frozen=True, slots=True)
class Departure:
    """A member that left its pool at `left_s` (monotonic), and why (`pool_user.departures`).

    `beside`: the cause without the override that is its `cause`, if it was out before. `is_confirmed`: its
    home registrar had listed it. `settled_home`: in a keyed pool, the settled registrar
    that was its home before another repeated its identifier; 0 if that is not known.
    """

    member: Member
    left_s: float
    cause: Cause
    is_confirmed: bool = False
    settled_home: int = 0
    beside: Cause | None = None

    @property
    def was_in_s(self) -> float:
        """How long it was in, in seconds."""
        return self.left_s - self.member.since_s

    def planned_s(self, now: float) -> float | None:
        """For how long from now on a person takes it out, in seconds; infinite: without an end. None: nobody
        does, or that time is over."""
        if not self.cause.code.is_planned:
            return None
        if self.cause.planned_s is None:
            return math.inf
        left_s = self.left_s + self.cause.planned_s - now
        return left_s if left_s > 0 else None

    def is_planned(self, now: float) -> bool:
        """Whether a person takes it out now: it is not missing."""
        return self.planned_s(now) is not None


@dataclass(frozen=True, slots=True)
class OutMember:
    """A pool element that registrars list and that is not shown."""

    identifier: int
    address: IPv4Address | IPv6Address | None
    port: int
    cause: Cause
    since_s: float


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool at one moment, `members` sorted by identifier (an identifier occurs once).

    `known` is False until there has been a view of the pool at all: its names are then answered with
    SERVFAIL, never with an empty answer. `stale_since_s` (monotonic) is when the last registrar that could
    vouch for the pool was lost, None while one can.

    `departures` are the members that left and are not in again, the one that left first before the others.

    `recent` serves `when_empty = "last-good"` and matters only while `members` is empty. It has the members
    that were in during the 10 s before the pool became empty, filtered by `accept`. Those that left on
    purpose are among them, since no answer of a registrar tells them from the dead. It is kept until a member
    is in again.

    `unreachable` are in `out` too: those that the backend's own probe does not reach. They are shown when
    nobody else is in, since a pool must not become empty by a fault of the probe.

    `suspected` are the identifiers of those whose home registrar is lost and who have not registered
    elsewhere: the backend probes them itself.

    `vanished` are the identifiers of those of a keyed pool that are gone without their sidecar's word. They
    are probed too, and among the `members` for a while when they answer.

    `moving` are the identifiers of members that registrars tell at another place: they are probed at the old
    one, and are among the `members` there while it answers.
    """

    handle: str
    members: tuple[Member, ...] = ()
    out: tuple[OutMember, ...] = ()
    departures: tuple[Departure, ...] = ()
    known: bool = False
    stale_since_s: float | None = None
    recent: tuple[Member, ...] = ()
    unreachable: tuple[Member, ...] = ()
    suspected: tuple[int, ...] = ()
    vanished: tuple[int, ...] = ()
    moving: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolChange:
    """The step of a pool from the view `before` to the view `after`.

    `joined` are the members that came in; `left` the departures of those that went out. `moved` are
    those, before and after, of which something differs: home registrar, address, policy, load or `stale`.
    `judged` are the departures of before that have another cause now, since an override began or ended. All
    four are empty if only PEs differ that are not shown.
    """

    before: PoolView
    after: PoolView
    joined: tuple[Member, ...] = ()
    left: tuple[Departure, ...] = ()
    moved: tuple[tuple[Member, Member], ...] = ()
    judged: tuple[Departure, ...] = ()

    @classmethod
    def between(
        cls,
        before: PoolView,
        after: PoolView,
        departed: Mapping[int, Departure] | None = None,
        judged: tuple[Departure, ...] = (),
    ) -> PoolChange:
        """The step between two views of a pool. `departed` are the departures, by identifier; without them
        those of the ledger count."""
        if before.members is after.members:
            return cls(before, after, judged=judged)
        old = {member.identifier: member for member in before.members}
        new = {member.identifier: member for member in after.members}
        joined, gone = new.keys() - old.keys(), old.keys() - new.keys()
        others = compress(new, map(is_not, new.values(), map(old.get, new)))
        if departed is None:
            departed = {departure.member.identifier: departure for departure in after.departures if gone}
        return cls(
            before,
            after,
            joined=tuple(new[identifier] for identifier in sorted(joined)),
            left=tuple(
                departed.get(identifier) or Departure(old[identifier], _UNKNOWN_S, _GONE)
                for identifier in sorted(gone)
            ),
            moved=tuple((old[identifier], new[identifier]) for identifier in others if identifier in old),
            judged=judged,
        )

    def then(self, later: PoolChange) -> PoolChange:
        """The step of both, one after the other."""
        joined = {member.identifier: member for member in self.joined}
        left = {departure.member.identifier: departure for departure in self.left}
        moved = {new.identifier: (old, new) for old, new in self.moved}
        for departure in later.left:
            identifier = departure.member.identifier
            if joined.pop(identifier, None) is None:
                old, _ = moved.pop(identifier, (departure.member, departure.member))
                left[identifier] = replace(departure, member=old)
        for member in later.joined:
            identifier = member.identifier
            if identifier in left:
                moved[identifier] = left.pop(identifier).member, member
            else:
                joined[identifier] = member
        for old, new in later.moved:
            identifier = new.identifier
            if identifier in joined:
                joined[identifier] = new
            else:
                moved[identifier] = moved.get(identifier, (old, old))[0], new
        judged = {departure.member.identifier: departure for departure in (*self.judged, *later.judged)}
        return PoolChange(
            self.before,
            later.after,
            tuple(joined.values()),
            tuple(left.values()),
            tuple(moved.values()),
            tuple(judged[identifier] for identifier in judged.keys() - joined.keys()),
        )


@dataclass(frozen=True, slots=True)
class BeliefChange:
    """The step of the whole belief: `pools` are the changes by handle, `views` all views after it."""

    pools: Mapping[str, PoolChange]
    views: Mapping[str, PoolView]

    @classmethod
    def between(cls, before: Mapping[str, PoolView], after: Mapping[str, PoolView]) -> BeliefChange:
        """The step between two moments. A pool that is new was not known before, nor one that is gone now."""
        pools = {
            handle: PoolChange.between(
                before.get(handle) or PoolView(handle), after.get(handle) or PoolView(handle)
            )
            for handle in before.keys() | after.keys()
            if before.get(handle) is not after.get(handle)
        }
        return cls(pools, after)


@dataclass(frozen=True, slots=True)
class RememberedPool:
    """One pool of the last-known-good file, in monotonic seconds of now.

    `stale_since_s`: a registrar vouched for it until then. None: too long ago, so that it has no members.
    """

    handle: str
    members: tuple[Member, ...]
    recent: tuple[Member, ...]
    stale_since_s: float | None
    departures: tuple[Departure, ...] = ()


@dataclass(frozen=True, slots=True)
class BeliefEvent:
    """Something that a person following the pools wants to read.

    `kind` is one of joined, left, moved, refused, questioned, vanished, and of a registrar (no handle, its
    number as `identifier`) registrar and misplaced. `member` is the PE that joined, left or moved.
    `handlespace` is the name of the handlespace; empty: there is one, without a name.
    """

    at_s: float
    kind: str
    handle: str
    identifier: int | None
    cause: Cause
    member: Member | None = None
    handlespace: str = ""

    @property
    def words(self) -> str:
        """The cause for people."""
        return self.cause.words

    def explained(self, registrars: Mapping[str, str]) -> BeliefEvent:
        """The event with its registrars named: `registrars` are number and address by identifier."""
        home = None if self.member is None else self.member.home_registrar
        cause = self.cause.explained(home, registrars)
        return self if cause is self.cause else replace(self, cause=cause)


def events_of(change: PoolChange, now: float) -> list[BeliefEvent]:
    """The events of one pool's change: members that joined, left, or have another home registrar, and PEs
    that are refused."""
    handle, events = change.after.handle, []
    for member in change.joined:
        cause = Cause(Code.REGISTERED, registrar=f"{member.home_registrar:08x}")
        events.append(BeliefEvent(now, "joined", handle, member.identifier, cause, member))
    for departure in change.left:
        member = departure.member
        events.append(BeliefEvent(now, "left", handle, member.identifier, departure.cause, member))
    for old, new in change.moved:
        if old.home_registrar != new.home_registrar:
            home, former = f"{new.home_registrar:08x}", f"{old.home_registrar:08x}"
            cause = Cause(Code.MOVED, registrar=home, former=former)
            events.append(BeliefEvent(now, "moved", handle, new.identifier, cause, new))
    known = {(member.identifier, member.cause) for member in change.before.out}
    return events + [
        BeliefEvent(now, "refused", handle, out.identifier, out.cause)
        for out in change.after.out
        if out.cause.code.is_refusal and (out.identifier, out.cause) not in known
    ]
