"""The ledger of departures: which members left a pool, when, and why. Pure: `now` is monotonic seconds.

There is one ledger for each pool, and all that is told of former members is read from it: `PoolView` carries
it to status and metrics, the last-known-good file keeps it across restarts, and the last good members of an
empty pool are chosen from it. It knows nothing of registrars or rules.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from itertools import compress
from operator import is_not

from daemon_kit.finding import Finding

from pool_user.cause import Cause, Code
from pool_user.views import Departure, Member, ServerAddress

_GONE = Cause(Code.GONE)
MOST_DEPARTURES = 1000
"""The most departures of one pool; strangers may make any number of servers come and go."""


class Departures:
    """The departures of one pool: a server that left is in it until it is in again, or until it is forgotten.

    A server is known by its address and port. Its identifier may be another one after a restart, and in a
    pool without keys another server may take it.

    Above MOST_DEPARTURES those are dropped that were in for the shortest time: a stranger drops strangers.
    """

    def __init__(self) -> None:
        self._by_server: dict[ServerAddress, Departure] = {}
        self._latest: dict[int, Departure] = {}
        """By the identifier of the member."""
        self.all: tuple[Departure, ...] = ()
        """In the order in which the members left; the same object until one comes or goes."""

    def get(self, identifier: int) -> Departure | None:
        """The latest departure of a member with this identifier."""
        return self._latest.get(identifier)

    def is_drained(self, identifier: int) -> bool:
        """Whether the member is out since its server was drained."""
        departure = self._latest.get(identifier)
        return departure is not None and departure.cause.code is Code.DRAINED

    def remember(self, departures: Iterable[Departure]) -> None:
        """Take the departures of before a restart."""
        self._by_server.update((departure.member.server_address, departure) for departure in departures)
        self._changed()

    def note(
        self,
        before: Mapping[int, Member],
        after: Mapping[int, Member],
        causes: Mapping[int, Cause],
        confirmed: Container[int],
        now: float,
        *,
        home_of: Callable[[int], int] = lambda identifier: 0,
    ) -> Mapping[int, Departure]:
        """The members, by identifier, changed from `before` to `after`. `causes` tells why some left,
        `confirmed` which of them a home registrar had listed, `home_of` the settled home of each.

        Return the departures of those that left, by identifier, also where the ledger does not keep them: a
        server that is back under another identifier at once, or that was in for too short a time.
        """
        departed = {
            identifier: Departure(
                before[identifier],
                now,
                causes.get(identifier, _GONE),
                identifier in confirmed,
                home_of(identifier),
            )
            for identifier in sorted(before.keys() - after.keys())
        }
        changed = compress(after, map(is_not, after.values(), map(before.get, after)))
        joined = {
            identifier: after[identifier]
            for identifier in changed
            if _is_new(after[identifier], before.get(identifier))
        }
        if not departed and not (joined and self._by_server):
            return departed
        for departure in departed.values():
            server = departure.member.server_address
            self._by_server.pop(server, None)  # the order is that of leaving
            self._by_server[server] = departure
        for member in joined.values():
            for address in member.addresses:
                self._by_server.pop((address, member.port), None)
        excess = len(self._by_server) - MOST_DEPARTURES
        for departure in heapq.nsmallest(
            excess, self._by_server.values(), lambda departure: departure.was_in_s
        ):
            del self._by_server[departure.member.server_address]
        self._changed()
        return departed

    def removed(self, identifiers: Iterable[int], causes: Mapping[int, Cause]) -> None:
        """The registrars list these members no more, which the probe had taken out: that is the cause now."""
        for identifier in identifiers:
            departure = self._latest.get(identifier)
            if departure is not None and departure.cause.code.is_unreached:
                cause = replace(causes.get(identifier, _GONE), finding=departure.cause.finding)
                self._by_server[departure.member.server_address] = replace(departure, cause=cause)
        self._changed()

    def judge(
        self,
        overriding: Callable[[Member], Cause | None],
        drained: Callable[[Departure], Cause | None],
        listed: Container[int],
    ) -> tuple[Departure, ...]:
        """Give each departure the cause of now, and return those with another one.

        `overriding` gives the cause of an override that holds a member out, None: none does. Without it the
        server is `drained`, if that lasts, or out by the cause of before. Those `listed` are out by their
        override alone.
        """
        judged = []
        for departure in self.all:
            override, is_out = overriding(departure.member), departure.cause.code is Code.OVERRIDDEN
            if override is not None:
                beside = departure.beside if is_out else departure.cause
                beside = None if departure.member.identifier in listed else beside
                new = replace(departure, cause=override, beside=beside)
            elif is_out:
                cause = drained(departure) or departure.beside or _GONE
                new = replace(departure, cause=cause, beside=None)
            else:
                continue
            if new != departure:
                self._by_server[departure.member.server_address] = new
                if new.cause != departure.cause:
                    judged.append(new)
        if judged:
            self._changed()
        return tuple(judged)

    def examined(self, member: Member, finding: Finding) -> bool:
        """A probe looked at a member that had left. Return False if it is in again."""
        departure = self._by_server.get(member.server_address)
        if departure is None or departure.member.identifier != member.identifier:
            return False
        cause = replace(departure.cause, finding=finding)
        self._by_server[member.server_address] = replace(departure, cause=cause)
        self._changed()
        return True

    def forget(self, is_wanted: Callable[[Departure], bool]) -> list[Departure]:
        """Forget the departures that are wanted, and return them."""
        found = [departure for departure in self.all if is_wanted(departure)]
        for departure in found:
            del self._by_server[departure.member.server_address]
        self._changed()
        return found

    def _changed(self) -> None:
        self.all = tuple(self._by_server.values())
        self._latest = {departure.member.identifier: departure for departure in self.all}


def _is_new(member: Member, before: Member | None) -> bool:
    """Whether a server is in where it was not under this identifier before."""
    return before is None or before.transport_addresses != member.transport_addresses
