"""How often each server came and went since the start, and how long it was down. Pure.

Planned time (`Departure.is_planned`) is no time down.
"""

from __future__ import annotations

from collections.abc import Mapping

from pool_user import BeliefChange, Cause, Code, Departure, Member, PoolView, ServerAddress

MOST_SERVERS = 20_000
"""Those that changed last are kept."""

_GONE = Cause(Code.GONE)
_Key = tuple[str, ServerAddress]
"""The pool handle, and the server."""


class MemberCounts:
    """The counts of the servers of all pools. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._changes: dict[_Key, int] = {}
        self._down_s: dict[_Key, float] = {}
        """The seconds down of outages that are over."""
        self._down_from_s: dict[_Key, float] = {}
        """Since when a server that is out is down, or will be."""

    def begin(self, views: Mapping[str, PoolView], now: float) -> None:
        """Count servers that were out before the start as down from now on, or from the end of their plan."""
        for handle, view in views.items():
            for departure in view.departures:
                key = handle, departure.member.server_address
                self._changes[key] = 0
                self._down_from_s[key] = now + (departure.planned_s(now) or 0.0)

    def take(self, change: BeliefChange, now: float) -> None:
        """Take a change of the belief."""
        for handle, pool in change.pools.items():
            for departure in pool.left:
                self._left(handle, departure, now)
            for old, new in pool.moved:
                if old.transport_addresses != new.transport_addresses:
                    self._left(handle, Departure(old, now, _GONE), now)
                    self._joined(handle, new, now)
            for member in pool.joined:
                self._joined(handle, member, now)
            for departure in pool.judged:
                key = handle, departure.member.server_address
                if key in self._down_from_s:
                    self._end(key, now)
                    self._down_from_s[key] = now + (departure.planned_s(now) or 0.0)

    def of(self, handle: str, server: ServerAddress, now: float) -> tuple[int, float]:
        """The changes of a server, and the seconds that it was down."""
        key = handle, server
        since_s = self._down_from_s.get(key, now)
        return self._changes.get(key, 0), self._down_s.get(key, 0.0) + max(0.0, now - since_s)

    def _left(self, handle: str, departure: Departure, now: float) -> None:
        key = handle, departure.member.server_address
        self._count(key)
        planned_s = departure.planned_s(now)
        self._down_from_s[key] = now + (planned_s or 0.0)

    def _joined(self, handle: str, member: Member, now: float) -> None:
        key = handle, member.server_address
        self._count(key)
        self._end(key, now)

    def _end(self, key: _Key, now: float) -> None:
        """Its time down, if it was down, is over."""
        down_s = now - self._down_from_s.pop(key, now)
        self._down_s[key] = self._down_s.get(key, 0.0) + max(0.0, down_s)

    def _count(self, key: _Key) -> None:
        self._changes[key] = self._changes.pop(key, 0) + 1
        if len(self._changes) > MOST_SERVERS:
            oldest = next(iter(self._changes))
            for counts in (self._changes, self._down_s, self._down_from_s):
                counts.pop(oldest, None)
