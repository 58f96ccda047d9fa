"""The belief of a pool user about its pools, as plain values.

The belief (`pool_user.belief`) makes them; answers, status and the last-known-good file read them. They hold
no rules of their own, so that every reader sees the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from itertools import compress
from operator import is_not
from types import MappingProxyType

from daemon_kit.finding import Finding

from pool_user.cause import Cause, Code
from rserpool import Policy, Protocol

_GONE = Cause(Code.GONE)
_NO_CAUSES: Mapping[int, Cause] = MappingProxyType({})

TransportAddresses = tuple[tuple[IPv4Address | IPv6Address, ...], int]
"""The addresses and the port of a pool element."""


@dataclass(frozen=True, slots=True)
class Member:
    """A pool element that is in: clients may be sent to it.

    `addresses` are those of its user transport, already filtered by the pool's `accept` networks and never
    empty: one for TCP and UDP, several for a multihomed SCTP element. `since_s` (monotonic) is when it came
    in; one that was only out of sight for a moment keeps its old value. `stale` means that it is shown from
    memory: no registrar vouches for it at present.
    """

    identifier: int
    home_registrar: int
    addresses: tuple[IPv4Address | IPv6Address, ...]
    port: int
    protocol: Protocol
    policy: Policy
    since_s: float
    stale: bool = False

    @property
    def transport_addresses(self) -> TransportAddresses:
        """The server's place: other addresses or another port are another server, also under the same
        identifier."""
        return self.addresses, self.port


@dataclass(frozen=True, slots=True)
class OutMember:
    """A pool element that is known and not shown."""

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

    `joined` are the members that came in; `left` those that went out, each with its cause. `moved` are those,
    before and after, of which something differs: home registrar, address, policy, load or `stale`. All three
    are empty if only PEs differ that are not shown.
    """

    before: PoolView
    after: PoolView
    joined: tuple[Member, ...] = ()
    left: tuple[tuple[Member, Cause], ...] = ()
    moved: tuple[tuple[Member, Member], ...] = ()

    @classmethod
    def between(
        cls, before: PoolView, after: PoolView, causes: Mapping[int, Cause] = _NO_CAUSES
    ) -> PoolChange:
        """The step between two views of a pool. `causes`, by identifier, are those of members that left."""
        if before.members is after.members:
            return cls(before, after)
        old = {member.identifier: member for member in before.members}
        new = {member.identifier: member for member in after.members}
        joined, left = new.keys() - old.keys(), old.keys() - new.keys()
        others = compress(new, map(is_not, new.values(), map(old.get, new)))
        return cls(
            before,
            after,
            joined=tuple(new[identifier] for identifier in sorted(joined)),
            left=tuple((old[identifier], causes.get(identifier, _GONE)) for identifier in sorted(left)),
            moved=tuple((old[identifier], new[identifier]) for identifier in others if identifier in old),
        )

    def then(self, later: PoolChange) -> PoolChange:
        """The step of both, one after the other."""
        joined = {member.identifier: member for member in self.joined}
        left = {member.identifier: (member, cause) for member, cause in self.left}
        moved = {new.identifier: (old, new) for old, new in self.moved}
        for member, cause in later.left:
            identifier = member.identifier
            if joined.pop(identifier, None) is None:
                old, _ = moved.pop(identifier, (member, member))
                left[identifier] = old, cause
        for member in later.joined:
            identifier = member.identifier
            if identifier in left:
                moved[identifier] = left.pop(identifier)[0], member
            else:
                joined[identifier] = member
        for old, new in later.moved:
            identifier = new.identifier
            if identifier in joined:
                joined[identifier] = new
            else:
                moved[identifier] = moved.get(identifier, (old, old))[0], new
        return PoolChange(
            self.before, later.after, tuple(joined.values()), tuple(left.values()), tuple(moved.values())
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
class BeliefEvent:
    """Something that a person following the pools wants to read.

    `kind` is one of joined, left, moved, refused, questioned, vanished, and of a registrar (no handle, its
    number as `identifier`) registrar and misplaced. `member` is the PE that joined, left or moved.
    """

    at_s: float
    kind: str
    handle: str
    identifier: int | None
    cause: Cause
    member: Member | None = None

    @property
    def words(self) -> str:
        """The cause for people."""
        return self.cause.words

    def explained(self, registrars: Mapping[str, str], finding: Finding | None) -> BeliefEvent:
        """The event with its registrars named: `registrars` are number and address by identifier.

        `finding` is of the last failed probe of the member: it counts where the probe took the member out.
        """
        cause = self.cause
        if cause.code is Code.REMOVED and self.member is not None:
            cause = replace(cause, registrar=f"{self.member.home_registrar:08x}")
        if cause.code.is_unreached:
            cause = replace(cause, finding=finding)
        if cause.registrar:
            registrar = registrars.get(cause.registrar, cause.registrar)
            cause = replace(cause, registrar=registrar, former=registrars.get(cause.former, cause.former))
        return self if cause is self.cause else replace(self, cause=cause)
