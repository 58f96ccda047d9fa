"""From views to answers: builds the next snapshot, swaps it in, and purges what changed.

A build follows every change of the views, and every moment at which time alone changes an answer (a weight
that grows, chance that draws again, a view that becomes too old). How often weights may move is decided by
`rspdns.answers.pool_state`; who is in or out is always published at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol as Interface

from pool_user import BeliefChange, Fairness, PoolChange, PoolView

from rspdns.answers.building import build
from rspdns.answers.change import Change
from rspdns.answers.serial_number import SerialNumbers
from rspdns.answers.snapshot import Snapshot
from rspdns.zones.zone import Zone

TIMED_EVERY_S = 0.1
"""Least time between two builds that only time calls for; what is due meanwhile waits for the next one."""
_SHORTEST_WAIT_S = 0.001
DEPARTED_KEPT_S = 1.0
"""How long the addresses of a target that left are answered. Its last purge comes 50 ms after the change, on
a busy machine later."""
PURGE_DEPARTED_S = 0.05
"""Time from then until the names of targets that left are purged once more."""
APEX_EVERY_S = 0.1
"""Least time between two purges of a zone's apex because its serial moved. A secondary decides by its SOA
whether to transfer the zone; without the purge that stays old for up to 3 s."""


class Purges(Interface):
    """The part of `rspdns.pdns.purge.Purger` that the publisher needs."""

    def purge(self, names: Collection[str]) -> None: ...  # noqa: D102 - `Purger` says it
    def rediscover(self) -> None: ...  # noqa: D102 - `Purger` says it
    @property
    def free_at_s(self) -> float: ...  # noqa: D102 - `Purger` says it


class Publisher:
    """Publishes `zones`. `swap` takes each change, and calls its second argument once the new snapshot is
    answered, with the names to purge first: only then the changes are purged.

    `hot` gives the pool handles that were looked up lately: only for these chance draws again.
    `on_published` is told, after each build, the names that are to be purged.

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
        on_published: Callable[[set[str]], None] = lambda names: None,
        is_seen_at_once: Callable[[], bool] = lambda: False,
    ) -> None:
        self.snapshot = Snapshot()
        self.builds = 0
        self.built_at_s: float | None = None
        """When the snapshot was built (monotonic)."""
        self._on_published = on_published
        self._is_seen_at_once = is_seen_at_once
        self._zones = tuple(zones)
        self._views: Mapping[str, PoolView] = {}
        self._changes: dict[str, PoolChange] = {}
        """By pool, the change since it was built last."""
        self._fairness = fairness or Fairness(clock=clock)
        self._serials = serials
        self._swap = swap
        self._purger = purger
        self._max_stale_s = max_stale_s
        self._hot = hot
        self._clock = clock
        self._draw = draw or random.Random()  # noqa: S311 - spreads load, no secret
        self._unpurged = {zone.name for zone in zones}
        self._apex_purged_s: dict[str, float] = {}
        """When each zone's apex is or was purged last because the serial moved."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = float("inf")
        self._whole_at_s = float("-inf")
        """When a build does all that only time calls for; one before then takes changes alone."""
        self._rested_at_s = float("-inf")
        self._ready_at_s: float | None = None
        """When the build may come that a change waits for; None when none waits."""

    def start(self, change: BeliefChange) -> None:
        """Publish for the first time. PowerDNS may have run all the while: it reads its zones anew."""
        self._purger.rediscover()
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
                self._ready_at_s = max(self._ready_at_s, self._purger.free_at_s)
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
        before = {zone.name for zone in self._zones}
        self._zones = tuple(zones)
        self._unpurged = before | {zone.name for zone in zones}
        self._apex_purged_s.clear()
        self._purger.rediscover()
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
            with self._fairness.work(chosen):
                self._build_pools([handle for handle, _ in chosen], began_s)
            self.built_at_s = ended_s = self._clock()
            self._rested_at_s = 2 * ended_s - began_s
            whole_at_s = max(self.snapshot.rebuild_at_s, began_s + TIMED_EVERY_S)
            is_whole = began_s >= self._whole_at_s
            self._whole_at_s = whole_at_s if is_whole else min(whole_at_s, self._whole_at_s)
        self._set_timer(self._whole_at_s if resume_at_s is None else min(self._whole_at_s, resume_at_s))

    def _build_pools(self, handles: Iterable[str], now: float) -> None:
        """Build with the changes of these pools; others that changed are as they were built last."""
        old, serial = self.snapshot, self._serials.following
        changes = {handle: self._changes.pop(handle) for handle in handles}
        resting = {handle: change.before for handle, change in self._changes.items()}
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
        self.snapshot = new = change.after
        self.builds += 1
        zones = (zone.after for zone in change.zones.values())
        moved = {zone.name for zone in zones if zone is not None and zone.serial == serial}
        if moved:
            self._serials.use(serial)
        whole = self._whole_zones(new)
        names = {f"{zone}$" for zone in whole}
        apexes: set[str] = set()
        if self.builds > 1:
            names |= change.names(whole)
            apexes = moved - whole
        self._swap(change, lambda first: self._purge(new, first, names, apexes))

    def _purge(
        self, new: Snapshot, first: Collection[str], changed: Collection[str], apexes: Collection[str]
    ) -> None:
        """Purge these names, and the `apexes` of zones whose serial moved: `new` is answered now.

        PowerDNS purges one name after the other: SRV records when their targets' names are up to date, the
        apex last, since a secondary that sees the new serial takes all else for new, too.
        """
        names = set(changed).difference(first)
        self._on_published({*first, *names})
        due = self._apexes_due(set(apexes).difference(first, names))
        if first or names or due:
            self._purger.purge((*first, *sorted(names, key=_is_service), *due))
        self._purge_later(new, names)

    def _apexes_due(self, zones: Collection[str]) -> list[str]:
        """The apexes to purge at once; one that was purged a moment ago is purged `APEX_EVERY_S` later."""
        now, due = self._clock(), []
        for zone in sorted(zones):
            wait_s = self._apex_purged_s.get(zone, float("-inf")) + APEX_EVERY_S - now
            if wait_s > APEX_EVERY_S:
                continue  # it waits already
            if wait_s <= 0:
                due.append(zone)
            else:
                asyncio.get_running_loop().call_later(wait_s, self._purger.purge, (zone,))
            self._apex_purged_s[zone] = now + max(0.0, wait_s)
        return due

    def _purge_later(self, new: Snapshot, names: Collection[str]) -> None:
        """Purge the names that left once more when they are answered no more: PowerDNS would keep what it
        learned of them meanwhile, for up to 3 s."""
        left = {name for name in names if not any(name in nodes for nodes in new.nodes.values())}
        left = {name for name in left if not name.endswith("$")}
        if left:
            after_s = DEPARTED_KEPT_S + PURGE_DEPARTED_S
            asyncio.get_running_loop().call_later(after_s, self._purger.purge, left)

    def _whole_zones(self, snapshot: Snapshot) -> set[str]:
        """The zones to purge as a whole, once: when they are first known in this life.

        PowerDNS may have cached answers of a former one that the difference of two snapshots does not show.
        As long as a pool is unknown, what is cached is better than what would come instead.
        """
        known = {
            name
            for name in self._unpurged
            if (zone := snapshot.zone_answers.get(name)) is None
            or not any(node.failure for site in zone.sites for node in site.nodes.values())
        }
        self._unpurged -= known
        return known

    def _set_timer(self, at_s: float) -> None:
        self._cancel_timer()
        if at_s != float("inf"):
            self._timer_at_s = at_s
            delay_s = max(at_s - self._clock(), _SHORTEST_WAIT_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._build)


def _sized(change: PoolChange) -> tuple[str, int]:
    return change.after.handle, len(change.after.members)


def _is_service(name: str) -> bool:
    """Whether SRV records stand at this name."""
    return name.startswith("_")
