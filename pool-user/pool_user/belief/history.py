"""The memory of a pool about its members' comings and goings: `since_s`, who left lately, the last good
ones."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from pool_user.belief.rules import (
    BLINK_S,
    LAST_GOOD_AFTER_S,
    LAST_GOOD_REPLACED_AFTER_S,
    OUT_SHOWN_S,
    RECENT_S,
)
from pool_user.cause import Cause, Code
from pool_user.views import Member, OutMember, TransportAddresses

MAX_LEFT = 256
"""Members that left and are remembered; a hostile registrar could make any number come and go."""
_GONE = Cause(Code.GONE)


@dataclass(frozen=True, slots=True)
class _Left:
    member: Member
    cause: Cause
    left_s: float
    is_confirmed: bool

    @property
    def was_in_s(self) -> float:
        return self.left_s - self.member.since_s


class History:
    """The memory of one pool.

    The last good members (`when_empty = "last-good"`) should be those that crashed, not those that left on
    purpose. The wire does not tell them apart: a registrar drops a PE that deregistered, one whose
    association ended, and one that did not answer its keep-alive in the same way. So every member that was in
    during the 10 s before the pool became empty counts as crashed. After a drain one by one the early ones
    stay out.

    Only members count that their home registrar confirmed. Those that were in for LAST_GOOD_AFTER_S come
    before all others. Servers that register for a moment in a pool that is empty replace nobody: the last
    good ones stay, and are added to, until the pool became empty of members that were in for as long, or for
    LAST_GOOD_REPLACED_AFTER_S.
    """

    def __init__(self) -> None:
        self._left: dict[int, _Left] = {}
        self._out_since_s: dict[int, tuple[Cause, float]] = {}
        self.recent: tuple[Member, ...] = ()
        """The last good ones of the last time that the pool was empty; they matter while it is."""
        self._recent_was_in_s = float("inf")
        """How long the longest of these was in; those of before a restart count as in for long."""
        self._in_since_s = float("-inf")
        """Since when the pool has members, or had some at last."""

    def since_s(
        self, identifier: int, addresses: TransportAddresses, before: Mapping[int, Member], now: float
    ) -> float:
        """When the member came in: who was out of sight for a moment only keeps the old value."""
        known = before.get(identifier)
        if known is None:
            left = self._left.get(identifier)
            known = left.member if left is not None and now - left.left_s <= BLINK_S else None
        if known is None or known.transport_addresses != addresses:
            return now
        return known.since_s

    def note(
        self,
        before: Mapping[int, Member],
        after: Mapping[int, Member],
        causes: Mapping[int, Cause],
        confirmed: Container[int],
        now: float,
    ) -> None:
        """The members changed from `before` to `after`; `causes` tells why some left, `confirmed` which of
        them a home registrar has listed."""
        for identifier in before.keys() - after.keys():
            cause = causes.get(identifier, _GONE)
            self._left.pop(identifier, None)  # the order is that of leaving
            self._left[identifier] = _Left(before[identifier], cause, now, identifier in confirmed)
        while len(self._left) > MAX_LEFT:
            del self._left[min(self._left, key=lambda identifier: self._left[identifier].was_in_s)]
        for identifier in after.keys() & self._left.keys():
            del self._left[identifier]
        if after and not before:
            self._in_since_s = now
        if before and not after:
            self._note_last_good(now)

    def _note_last_good(self, now: float) -> None:
        """The pool became empty."""
        lately = [left for left in self._left.values() if left.is_confirmed and now - left.left_s <= RECENT_S]
        good = [left for left in lately if left.was_in_s >= LAST_GOOD_AFTER_S]
        was_in_s = max((left.was_in_s for left in good), default=0.0)
        found = {left.member.identifier: left.member for left in good or lately}
        if self.recent and was_in_s < min(self._recent_was_in_s, LAST_GOOD_REPLACED_AFTER_S):
            kept = {member.identifier: member for member in self.recent}
            added = found if now >= self._in_since_s + LAST_GOOD_AFTER_S else {}
            found = dict([*(kept | {new: added[new] for new in added if new not in kept}).items()][:MAX_LEFT])
        else:
            self._recent_was_in_s = was_in_s
        self.recent = tuple(found[identifier] for identifier in sorted(found))

    def out(
        self, waiting: Mapping[int, OutMember], members: Mapping[int, Member], now: float
    ) -> tuple[OutMember, ...]:
        """The PEs that are known and not shown: the `waiting`, and those that left within the last minute."""
        while self._left and now - self._left[first := next(iter(self._left))].left_s >= OUT_SHOWN_S:
            del self._left[first]
        found = {
            identifier: OutMember(
                identifier, left.member.addresses[0], left.member.port, left.cause, left.left_s
            )
            for identifier, left in self._left.items()
            if identifier not in members
        }
        since_s: dict[int, tuple[Cause, float]] = {}
        for identifier, out in waiting.items():
            known = self._out_since_s.get(identifier)
            since_s[identifier] = known if known is not None and known[0] == out.cause else (out.cause, now)
            found[identifier] = replace(out, since_s=since_s[identifier][1])
        self._out_since_s = since_s
        return tuple(found[identifier] for identifier in sorted(found))

    @property
    def next_deadline_s(self) -> float | None:
        """When somebody who left is not shown any more."""
        first = next(iter(self._left.values()), None)  # they are in the order of leaving
        return None if first is None else first.left_s + OUT_SHOWN_S
