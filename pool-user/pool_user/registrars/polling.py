"""When to ask which registrar about which pool: pure decisions, no clock and no socket.

Pools that were looked up lately are hot and asked every 50 ms, all others in turn within 10 s. A
registrar that is followed, and so tells of changes by itself, is asked about hot pools once a second, as a
check. Pools that it was never asked about come first. A registrar that takes long to answer is asked less
often, a silent one only about its sentinel. A question is never repeated while the same one is unanswered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

MAX_UNANSWERED = 512
"""Questions under way to one registrar at any time; the next ones wait for the next round."""
MAX_NEW_PER_ROUND = 100
"""Pools that a registrar is asked about for the first time in one round. Answers of more would hold up all
else."""
MAX_QUESTIONS_PER_S = 1000
"""The most questions to one registrar. With more hot pools than fit, each of them is asked less often."""
ROUND_TRIPS_PER_ROUND = 4
"""A registrar that needs 20 ms to answer is asked every 80 ms."""
SLOWEST_ROUND_S = 1.0
SENTINEL_EVERY_S = 0.25
"""The longest time between two questions about the sentinel's pool; every round that asks about pools has
one."""
MOST_IDLE_CHECKS_PER_S = 20
"""The most questions to a followed registrar about pools that nobody looked up. With more than 200 such pools
a turn takes longer than their interval. Without this bound, 1,000 idle pools of 10 cost a quarter of a
core."""
CHECK_EVERY_S = 1.0
"""How often a followed registrar is asked about a hot pool."""
REPEAT_AFTER_S = 0.002
"""The least time between two questions about one pool, also when the answer is waited for."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """From the configuration: how often a hot pool is asked, how long it stays hot, how often others are
    asked."""

    hot_s: float = 0.05
    hot_for_s: float = 60.0
    idle_s: float = 10.0


class HotPools:
    """The pools looked up lately; at first, and for as long, all are."""

    def __init__(
        self, handles: Iterable[str] = (), intervals: Intervals = Intervals(), now: float = 0.0
    ) -> None:
        self._hot_for_s = intervals.hot_for_s
        self._handles = dict.fromkeys(handles)
        self._until_s = dict.fromkeys(self._handles, now + intervals.hot_for_s)
        """The end of the hot time of each hot pool."""
        self._looked_up: set[str] = set()
        self.version = 0
        """Goes up when the pools change."""

    def note_query(self, handle: str, now: float) -> bool:
        """Somebody looked the pool up. Return True when it was not hot: then it should be asked at once."""
        if handle not in self._handles:
            return False
        until_s = self._until_s.get(handle, now)
        self._until_s[handle] = now + self._hot_for_s
        self._looked_up.add(handle)
        return now >= until_s

    def set_handles(self, handles: Iterable[str], now: float) -> None:
        """Take new pools: those that were not known are hot."""
        before, self._handles = self._handles, dict.fromkeys(handles)
        new = dict.fromkeys(
            (handle for handle in self._handles if handle not in before), now + self._hot_for_s
        )
        kept = {handle: until_s for handle, until_s in self._until_s.items() if handle in self._handles}
        self._until_s = kept | new
        self._looked_up &= self._handles.keys()
        self.version += 1

    def hot(self, now: float) -> list[str]:
        """The hot pools."""
        cold = [handle for handle, until_s in self._until_s.items() if now >= until_s]
        for handle in cold:
            del self._until_s[handle]
            self._looked_up.discard(handle)
        return list(self._until_s)

    def looked_up(self, now: float) -> list[str]:
        """The hot pools that somebody looked up: not those that are hot because they are new."""
        return [handle for handle in self._looked_up if now < self._until_s[handle]]

    @property
    def handles(self) -> Iterable[str]:
        """All pools."""
        return self._handles.keys()


class Round:
    """The pools to ask about at one registrar. `sentinel` is the handle of its own sentinel's pool.

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
        self._idle_at_s = float("inf")
        self._idle_due = 0.0
        """How many of these are due, by the time that has passed."""
        self._version: int | None = None
        self._new: list[str] = []
        """The pools that were never asked about since the link came up, in the opposite order."""
        self._hot_turn = 0

    def interval_s(self, hot_count: int, round_trip_s: float | None, *, followed: bool = False) -> float:
        """The time until the next round."""
        slow_s = ROUND_TRIPS_PER_ROUND * (round_trip_s or 0.0)
        if followed:
            return max(SENTINEL_EVERY_S, min(slow_s, SLOWEST_ROUND_S))
        if self._new or self._version is None:
            return max(self._intervals.hot_s, min(slow_s, SLOWEST_ROUND_S))
        return max(self._intervals.hot_s, min(max(slow_s, hot_count / MAX_QUESTIONS_PER_S), SLOWEST_ROUND_S))

    def due(
        self, pools: HotPools, interval_s: float, sentinel_only: bool, now: float, *, followed: bool = False
    ) -> list[str]:
        """The pools to ask about in this round, the sentinel first. `sentinel_only`: the registrar answers
        nothing at present, or may soon tell everything; `followed`: it pushes changes."""
        hot = pools.looked_up(now) if followed else pools.hot(now)
        self._take_pools(pools, hot, now)
        room = MAX_UNANSWERED - len(self._unanswered)
        if sentinel_only:
            wanted = []
        elif self._new and not followed:
            wanted = self._unasked(min(room, MAX_NEW_PER_ROUND))
        else:
            first = self._unchecked(hot, now) if followed else self._in_turn(hot)
            most_per_s = MOST_IDLE_CHECKS_PER_S if followed else float("inf")
            wanted = [*first, *self._idle_share(set(hot), now, most_per_s)]
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
        self._version = None

    def _take_pools(self, pools: HotPools, hot: list[str], now: float) -> None:
        """Take note of other pools, and after a lost link."""
        if self._version != pools.version:
            self._version = pools.version
            self._idle, self._idle_at_s = deque(pools.handles), now
            hot_first = dict.fromkeys((*hot, *pools.handles))
            self._new = [handle for handle in reversed(hot_first) if handle not in self._asked_s]

    def _unasked(self, most: int) -> list[str]:
        """Take from what was never asked about."""
        unasked: list[str] = []
        while self._new and len(unasked) < most:
            handle = self._new.pop()
            if handle not in self._asked_s:
                unasked.append(handle)
        return unasked

    def _in_turn(self, hot: list[str]) -> list[str]:
        """The hot pools, beginning where the last round had no more room."""
        if len(hot) <= MAX_UNANSWERED:
            return hot
        start = self._hot_turn % len(hot)
        self._hot_turn = start + MAX_UNANSWERED
        return hot[start:] + hot[:start]

    def _unchecked(self, hot: list[str], now: float) -> list[str]:
        """The hot pools that are due to be asked about, the longest first."""
        every_s = max(self._intervals.hot_s, CHECK_EVERY_S) - SENTINEL_EVERY_S / 2
        asked_s = {handle: self._asked_s.get(handle, float("-inf")) for handle in hot}
        return sorted((handle for handle in hot if now - asked_s[handle] >= every_s), key=asked_s.__getitem__)

    def _idle_share(self, hot: set[str], now: float, most_per_s: float) -> list[str]:
        """As many of the others as are due in this round, so that all have their turn in `idle_s`."""
        passed_s, self._idle_at_s = now - self._idle_at_s, now
        self._idle_due += min(len(self._idle) / self._intervals.idle_s, most_per_s) * passed_s
        self._idle_due = min(self._idle_due, MAX_UNANSWERED, len(self._idle))
        turns = int(self._idle_due)
        self._idle_due -= turns
        share = [handle for handle in islice(self._idle, turns) if handle not in hot]
        self._idle.rotate(-turns)
        return share
