"""When to ask which registrar about which pool: pure decisions, no clock and no socket.

Pools that were looked up lately are hot and asked every 50 ms, all others in turn within 10 s. A
registrar that is followed, and so tells of changes by itself, is asked about hot pools once a second, as a
check. One that takes long to answer is asked less often, a silent one only about its sentinel. A question is
never repeated while the same one is unanswered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

MAX_UNANSWERED = 512
"""Questions under way to one registrar at any time; the next ones wait for the next round."""
MAX_QUESTIONS_PER_S = 1000
"""To one registrar: with more hot pools than fit, each of them is asked less often."""
ROUND_TRIPS_PER_ROUND = 4
"""A registrar that needs 20 ms to answer is asked every 80 ms."""
SLOWEST_ROUND_S = 1.0
SENTINEL_EVERY_S = 0.25
"""The sentinel's pool is asked with every round that asks about pools, and at least so often."""
CHECK_EVERY_S = 1.0
"""How often a followed registrar is asked about a hot pool."""
REPEAT_AFTER_S = 0.002
"""At least so much time between two questions about one pool, also when the answer is waited for."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """From the configuration: how often a hot pool is asked, how long it stays hot, how often others are
    asked."""

    hot_s: float
    hot_for_s: float
    idle_s: float


class HotPools:
    """The pools looked up lately; at first, and for as long, all are."""

    def __init__(self, handles: Iterable[str], intervals: Intervals, now: float) -> None:
        self._hot_for_s = intervals.hot_for_s
        self._until_s: dict[str, float] = dict.fromkeys(handles, now + intervals.hot_for_s)
        self.version = 0
        """Goes up when the pools change."""

    def note_query(self, handle: str, now: float) -> bool:
        """Somebody looked the pool up. Return True when it was not hot: then it should be asked at once."""
        until_s = self._until_s.get(handle)
        if until_s is None:
            return False
        self._until_s[handle] = now + self._hot_for_s
        return now >= until_s

    def set_handles(self, handles: Iterable[str], now: float) -> None:
        """Take new pools: those that were not known are hot."""
        self._until_s = {
            handle: self._until_s.get(handle, now + self._hot_for_s) for handle in dict.fromkeys(handles)
        }
        self.version += 1

    def hot(self, now: float) -> list[str]:
        """The hot pools."""
        return [handle for handle, until_s in self._until_s.items() if now < until_s]

    @property
    def handles(self) -> Iterable[str]:
        """All pools."""
        return self._until_s.keys()


class Round:
    """Whom to ask about at one registrar. `sentinel` is the handle of its own sentinel's pool.

    A handle given out by `due()`, or for which `may_ask()` said yes and `asked()` was called, counts as
    unanswered until `done()`.
    """

    def __init__(self, sentinel: str, intervals: Intervals) -> None:
        self._sentinel = sentinel
        self._intervals = intervals
        self._unanswered: set[str] = set()
        self._again: set[str] = set()
        self._asked_s: dict[str, float] = {}
        self._idle: deque[str] = deque()
        self._idle_version = -1
        self._hot_turn = 0

    def interval_s(self, hot_count: int, round_trip_s: float | None, *, followed: bool = False) -> float:
        """The time until the next round."""
        slow_s = ROUND_TRIPS_PER_ROUND * (round_trip_s or 0.0)
        if followed:
            return max(SENTINEL_EVERY_S, min(slow_s, SLOWEST_ROUND_S))
        return max(self._intervals.hot_s, min(max(slow_s, hot_count / MAX_QUESTIONS_PER_S), SLOWEST_ROUND_S))

    def due(
        self, pools: HotPools, interval_s: float, silent: bool, now: float, *, followed: bool = False
    ) -> list[str]:
        """What to ask in this round, the sentinel first. `silent`: the registrar answers nothing at
        present; `followed`: it pushes changes."""
        hot = pools.hot(now)
        first = self._unchecked(hot, now) if followed else self._in_turn(hot)
        wanted = [] if silent else [*first, *self._idle_share(pools, set(hot), interval_s, now)]
        room = MAX_UNANSWERED - len(self._unanswered)
        if followed:
            room = min(room, int(MAX_QUESTIONS_PER_S * interval_s))
        asked = [handle for handle in wanted if handle not in self._unanswered][: max(0, room)]
        sentinel_age_s = now - self._asked_s.get(self._sentinel, float("-inf"))
        if self._sentinel not in self._unanswered and (asked or sentinel_age_s >= SENTINEL_EVERY_S):
            asked.insert(0, self._sentinel)
        for handle in asked:
            self.asked(handle, now)
        return asked

    def may_ask(self, handle: str, now: float) -> bool:
        """Whether a question may go out at once; if one is unanswered, it is asked again after that."""
        if handle in self._unanswered:
            self._again.add(handle)
            return False
        return now >= self._asked_s.get(handle, float("-inf")) + REPEAT_AFTER_S

    def is_unanswered(self, handle: str) -> bool:
        """Whether a question is under way."""
        return handle in self._unanswered

    def asked(self, handle: str, now: float) -> None:
        """A question went out."""
        self._unanswered.add(handle)
        self._asked_s[handle] = now

    def done(self, handle: str) -> bool:
        """It was answered, or given up. Return True when it is wanted again at once."""
        self._unanswered.discard(handle)
        again = handle in self._again
        self._again.discard(handle)
        return again

    def forget(self) -> None:
        """The link was lost: nothing is wanted again, everything is due."""
        self._again.clear()
        self._asked_s.clear()

    def _in_turn(self, hot: list[str]) -> list[str]:
        """The hot pools, beginning where the last round had no more room."""
        if len(hot) <= MAX_UNANSWERED:
            return hot
        start = self._hot_turn % len(hot)
        self._hot_turn = start + MAX_UNANSWERED
        return hot[start:] + hot[:start]

    def _unchecked(self, hot: list[str], now: float) -> list[str]:
        """The hot pools that were not asked about for so long that they should be, the longest first."""
        every_s = max(self._intervals.hot_s, CHECK_EVERY_S) - SENTINEL_EVERY_S / 2
        asked_s = {handle: self._asked_s.get(handle, float("-inf")) for handle in hot}
        return sorted((one for one in hot if now - asked_s[one] >= every_s), key=asked_s.__getitem__)

    def _idle_share(self, pools: HotPools, hot: set[str], interval_s: float, now: float) -> list[str]:
        """As many of the others as are due in this round, so that all had their turn after `idle_s`."""
        if self._idle_version != pools.version:
            self._idle, self._idle_version = deque(pools.handles), pools.version
        share = int(len(self._idle) * interval_s / self._intervals.idle_s) + 1
        found: list[str] = []
        for _ in range(len(self._idle)):
            handle = self._idle[0]
            age_s = now - self._asked_s.get(handle, float("-inf"))
            if len(found) >= share or (handle not in hot and age_s < self._intervals.idle_s):
                break
            self._idle.rotate(-1)
            if handle not in hot:
                found.append(handle)
        return found
