"""From views to answers: builds the next snapshot, swaps it in, and has the purges follow.

A build follows every change of the views, and every moment at which time alone changes an answer (a weight
that grows, chance that draws again, a view that becomes too old). How often weights may move is decided by
`rspdns.answers.pool_state`; who is in or out is always published at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pool_user import BeliefChange, Fairness, PoolChange, PoolView

from rspdns.answers.building import build
from rspdns.answers.change import Change
from rspdns.answers.purges import ChangePurges, Purges
from rspdns.answers.serial_number import SerialNumbers
from rspdns.answers.snapshot import Snapshot
from rspdns.zones.zone import Zone

TIMED_EVERY_S = 0.1
"""Least time between two builds that only time calls for; what is due meanwhile waits for the next one."""
FAILED_ASIDE_S = 2 * TIMED_EVERY_S
"""A pool whose build failed is left out for so long: all that is due is built without it meanwhile."""
_MOST_NAMED = 10
_SHORTEST_WAIT_S = 0.001


class Publisher:
    """Publishes `zones`. `swap` takes each change, and calls its second argument once the new snapshot is
    answered, with the names to purge first: only then the changes are purged.

    `hot` gives the pool handles that were looked up lately: only for these chance draws again.
    `on_published` is told, after each build, the names that are to be purged, and the change.

    `is_seen_at_once` tells whether the kernel shows a change without a purge: then no build waits for one.
    """

    def __init__(
        self,
        zones: Sequence[Zone],
        serials: SerialNumbers,
        swap: Callable[[Change, Callable[[Collection[str]], None]], None],
        purger: Purges,
        *,
        max_stale_s: float,
        hot: Callable[[], frozenset[str]],
        clock: Callable[[], float] = time.monotonic,
        draw: random.Random | None = None,
        fairness: Fairness | None = None,
        on_published: Callable[[set[str], Change], None] = lambda names, change: None,
        is_seen_at_once: Callable[[], bool] = lambda: False,
    ) -> None:
        self.snapshot = Snapshot()
        self.builds = 0
        self.built_at_s: float | None = None
        """When the snapshot was built (monotonic)."""
        self._is_seen_at_once = is_seen_at_once
        self._zones = tuple(zones)
        self._views: Mapping[str, PoolView] = {}
        self._changes: dict[str, PoolChange] = {}
        """By pool, the change since it was built last."""
        self._fairness = fairness or Fairness(clock=clock)
        self._serials = serials
        self._swap = swap
        self._purges = ChangePurges(purger, on_published, clock)
        self._max_stale_s = max_stale_s
        self._hot = hot
        self._clock = clock
        self._draw = draw or random.Random()  # noqa: S311 - spreads load, no secret
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = float("inf")
        self._whole_at_s = float("-inf")
        """When a build does all that only time calls for; one before then takes changes alone."""
        self._rested_at_s = float("-inf")
        self._ready_at_s: float | None = None
        """When the build may come that a change waits for; None when none waits."""

    def start(self, change: BeliefChange) -> None:
        """Publish for the first time. PowerDNS may have run all the while: it reads its zones anew."""
        self._purges.rediscover(zone.name for zone in self._zones)
        self._take(change)
        self._build_all()

    def publish(self, change: BeliefChange) -> None:
        """Build what changed at once, or when as much time as the last build took has passed since.

        So answers to PowerDNS get their share of the time also when thousands of pools change all the time.
        Then a build also waits until its names can be purged, and takes along what changes meanwhile: nobody
        would see it earlier.
        """
        self._take(change)
        if self._ready_at_s is None:
            self._ready_at_s = self._rested_at_s
            if not self._is_seen_at_once():
                self._ready_at_s = max(self._ready_at_s, self._purges.free_at_s)
        if self._clock() < self._ready_at_s:
            self._set_timer(self._ready_at_s)
        else:
            self._build()

    def looked_up(self, handles: Iterable[str]) -> None:
        """Somebody looks these pools up: chance draws for them again, also when nothing else changes."""
        asked_for = self.snapshot.asked_for
        if asked_for is None or asked_for.issuperset(handles) or self.built_at_s is None:
            return
        at_s = self.built_at_s + TIMED_EVERY_S
        self._whole_at_s = min(self._whole_at_s, at_s)
        if at_s < self._timer_at_s:
            self._set_timer(at_s)

    def _take(self, change: BeliefChange) -> None:
        self._views = change.views
        for handle, later in change.pools.items():
            earlier = self._changes.get(handle)
            self._changes[handle] = later if earlier is None else earlier.then(later)

    def set_zones(self, zones: Sequence[Zone], change: BeliefChange) -> None:
        """The zones changed, and the belief about their pools: everything is built and purged anew."""
        self._purges.rediscover(zone.name for zone in (*self._zones, *zones))
        self._zones = tuple(zones)
        self._take(change)
        self._build_all()

    def _build_all(self) -> None:
        """Build everything anew. That takes long and comes once: the next change does not wait for it."""
        self._fairness.forget()
        self._build(everything=True)
        self._rested_at_s = float("-inf")
        self._fairness.forget()

    def close(self) -> None:
        """Build no more."""
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at_s = float("inf")

    def _build(self, *, everything: bool = False) -> None:
        self._ready_at_s = None
        began_s = self._clock()
        chosen, resume_at_s = self._fairness.choose(map(_sized, self._changes.values()))
        if chosen or everything or began_s >= self._whole_at_s:
            try:
                with self._fairness.work(chosen):
                    self._build_pools([handle for handle, _ in chosen], began_s)
            except Exception as error:
                self._whole_at_s = began_s + TIMED_EVERY_S  # the next try takes all that is due
                failed = self._build_apart([handle for handle, _ in chosen], began_s)
                error.add_note(f"pools put aside: {len(failed)} {' '.join(failed[:_MOST_NAMED])}")
                self._rested_at_s = 2 * self._clock() - began_s
                self._set_timer(self._whole_at_s)
                raise
            self._rested_at_s = 2 * self._clock() - began_s
            whole_at_s = max(self.snapshot.rebuild_at_s, began_s + TIMED_EVERY_S)
            is_whole = began_s >= self._whole_at_s
            self._whole_at_s = whole_at_s if is_whole else min(whole_at_s, self._whole_at_s)
        self._set_timer(self._whole_at_s if resume_at_s is None else min(self._whole_at_s, resume_at_s))

    def _build_apart(self, handles: Sequence[str], now: float) -> list[str]:
        """Build the changes of these pools in ever smaller parts; return those that failed alone.

        They are put aside.
        """
        if not handles:
            return []
        try:
            self._build_pools(handles, now)
        except Exception:
            if len(handles) == 1:
                self._fairness.put_aside(handles[0], self._clock() + FAILED_ASIDE_S)
                return [handles[0]]
            middle = len(handles) // 2
            return self._build_apart(handles[:middle], now) + self._build_apart(handles[middle:], now)
        return []

    def _build_pools(self, handles: Iterable[str], now: float) -> None:
        """Build with the changes of these pools; others that changed are as they were built last.

        The changes are kept until they were swapped in: an exception before then loses none.
        """
        old, serial = self.snapshot, self._serials.following
        changes = {handle: self._changes[handle] for handle in handles}
        resting = {handle: change.before for handle, change in self._changes.items() if handle not in changes}
        change = build(
            self._zones,
            BeliefChange(changes, {**self._views, **resting} if resting else self._views),
            old,
            now,
            serial,
            self._draw,
            max_stale_s=self._max_stale_s,
            asked_for=self._hot(),
            only_changes=now < self._whole_at_s,
        )
        zones = (zone.after for zone in change.zones.values())
        moved = {zone.name for zone in zones if zone is not None and zone.serial == serial}
        if moved:
            self._serials.use(serial)
        self._swap(change, self._purges.of(change, moved, is_first=self.builds == 0))
        self.snapshot = change.after
        self.builds += 1
        self.built_at_s = self._clock()
        for handle in changes:
            del self._changes[handle]

    def _set_timer(self, at_s: float) -> None:
        self._cancel_timer()
        if at_s != float("inf"):
            self._timer_at_s = at_s
            delay_s = max(at_s - self._clock(), _SHORTEST_WAIT_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._build)


def _sized(change: PoolChange) -> tuple[str, int]:
    return change.after.handle, len(change.after.members)
