"""The memory of a pool about its members' comings and goings: `since_s`, the ledger of departures, and the
last good members."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from pool_user.belief.rules import (
    BLINK_S,
    LAST_GOOD_AFTER_S,
    LAST_GOOD_REPLACED_AFTER_S,
    RECENT_S,
)
from pool_user.cause import Cause, Code
from pool_user.departures import MOST_DEPARTURES, Departures
from pool_user.views import Departure, Member, OutMember, ServerAddress, TransportAddresses

_GONE = Cause(Code.GONE)


class History:
    """The memory of one pool.

    The last good members (`when_empty = "last-good"`) should be those that crashed, not those that left on
    purpose. The wire does not tell them apart: a registrar drops a PE that deregistered, one whose
    association ended, and one that did not answer its keep-alive in the same way. So every member that was in
    during the 10 s before the pool became empty counts as crashed, unless its sidecar told that it is
    drained.

    Only members count that their home registrar confirmed. Those that were in for LAST_GOOD_AFTER_S come
    before all others. Servers that register for a moment in a pool that is empty replace nobody: the last
    good ones stay, and are added to, until the pool became empty of members that were in for as long, or for
    LAST_GOOD_REPLACED_AFTER_S.
    """

    def __init__(self) -> None:
        self.departures = Departures()
        self._out_since_s: dict[int, tuple[Cause, float]] = {}
        self.recent: tuple[Member, ...] = ()
        """The last good ones of the last time that the pool was empty; they matter while it is."""
        self._recent_was_in_s = float("inf")
        """How long the longest of these was in; those of before a restart count as in for long."""
        self._in_since_s = float("-inf")
        """Since when the pool has members, or had some at last."""
        self._left: dict[ServerAddress, Departure] = {}
        """The confirmed members that left during the last RECENT_S, in again or not; the oldest first."""

    def since_s(
        self, identifier: int, addresses: TransportAddresses, before: Mapping[int, Member], now: float
    ) -> float:
        """When the member came in: who was out of sight for a moment only keeps the old value."""
        known = before.get(identifier)
        if known is None:
            left = self.departures.get(identifier)
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
        """The members, the unreachable included, changed from `before` to `after`. `causes` tells why some
        left, `confirmed` which of them a home registrar had listed. The ledger has those shown that left."""
        self.departures.removed(before.keys() - after.keys(), causes)
        if after and not before:
            self._in_since_s = now
        leaving = {
            identifier: Departure(
                before[identifier], now, causes.get(identifier, _GONE), identifier in confirmed
            )
            for identifier in before.keys() - after.keys()
        }
        self._note_left(leaving.values(), now)
        if before and not after:
            self._note_last_good(leaving, now)

    def _note_left(self, leaving: Iterable[Departure], now: float) -> None:
        """Keep the confirmed: a liar can have a server back for a moment, in a stay that no home confirms."""
        for departure in leaving:
            server = departure.member.server_address
            if departure.is_confirmed or departure.cause.code is Code.DRAINED:
                self._left.pop(server, None)
            if departure.is_confirmed:
                self._left[server] = departure
        while self._left:
            server = next(iter(self._left))
            if len(self._left) <= MOST_DEPARTURES and now - self._left[server].left_s <= RECENT_S:
                break
            del self._left[server]

    def _note_last_good(self, leaving: Mapping[int, Departure], now: float) -> None:
        """The pool became empty."""
        known = {
            departure.member.identifier: departure
            for departure in self.departures.all
            if now - departure.left_s <= RECENT_S
        }
        confirmed = [each for each in {**known, **leaving}.values() if each.is_confirmed]
        by_identifier = {each.member.identifier: each for each in (*self._left.values(), *confirmed)}
        lately = [each for each in by_identifier.values() if each.cause.code is not Code.DRAINED]
        if not lately:  # members without the word of a home replace nobody
            return
        good = [departure for departure in lately if departure.was_in_s >= LAST_GOOD_AFTER_S]
        was_in_s = max((departure.was_in_s for departure in good), default=0.0)
        found = {departure.member.identifier: departure.member for departure in good or lately}
        if self.recent and was_in_s < min(self._recent_was_in_s, LAST_GOOD_REPLACED_AFTER_S):
            kept = {member.identifier: member for member in self.recent}
            added = found if now >= self._in_since_s + LAST_GOOD_AFTER_S else {}
            found = dict([*(kept | added | kept).items()][:MOST_DEPARTURES])
        else:
            self._recent_was_in_s = was_in_s
        self.recent = tuple(found[identifier] for identifier in sorted(found))

    def out(self, waiting: Mapping[int, OutMember], now: float) -> tuple[OutMember, ...]:
        """The PEs that registrars list and that are not shown; `since_s`: since when for this cause."""
        before, self._out_since_s = self._out_since_s, {}
        for identifier, out in waiting.items():
            known = before.get(identifier)
            since_s = known[1] if known is not None and known[0] == out.cause else now
            self._out_since_s[identifier] = out.cause, since_s
        return tuple(
            replace(waiting[identifier], since_s=self._out_since_s[identifier][1])
            for identifier in sorted(waiting)
        )
