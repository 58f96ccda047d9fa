"""The names that PowerDNS must forget after a change: which ones, in which order, and when once more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Protocol as Interface

from rspdns.answers.change import Change
from rspdns.answers.snapshot import Snapshot

DEPARTED_KEPT_S = 1.0
"""How long the addresses of a target that left are answered. Its last purge comes 50 ms after the change, on
a busy machine later."""
PURGE_DEPARTED_S = 0.05
"""Time from then until the names of targets that left are purged once more."""
APEX_EVERY_S = 0.1
"""Least time between two purges of a zone's apex because its serial moved. A secondary decides by its SOA
whether to transfer the zone; without the purge that stays old for up to 3 s."""


class Purges(Interface):
    """The part of `rspdns.pdns.purge.Purger` that these purges need."""

    def purge(self, names: Collection[str]) -> None: ...  # noqa: D102 - `Purger` says it
    def rediscover(self) -> None: ...  # noqa: D102 - `Purger` says it
    @property
    def free_at_s(self) -> float: ...  # noqa: D102 - `Purger` says it


class ChangePurges:
    """The purges of published changes. `on_published` is told each with its names."""

    def __init__(
        self, purger: Purges, on_published: Callable[[set[str], Change], None], clock: Callable[[], float]
    ) -> None:
        self._purger = purger
        self._on_published = on_published
        self._clock = clock
        self._unpurged: set[str] = set()
        """The zones to purge as a whole."""
        self._apex_purged_s: dict[str, float] = {}
        """When each zone's apex is or was purged last because the serial moved."""

    @property
    def free_at_s(self) -> float:
        """When the next names can be purged."""
        return self._purger.free_at_s

    def rediscover(self, zones: Iterable[str]) -> None:
        """PowerDNS reads its zones anew. These are purged as a whole, each once it is known."""
        self._unpurged = set(zones)
        self._apex_purged_s.clear()
        self._purger.rediscover()

    def of(
        self, change: Change, moved: Collection[str], *, is_first: bool
    ) -> Callable[[Collection[str]], None]:
        """Return the purge of this change, to be called once it is answered, with the names to purge first.

        `moved` are the zones whose serial moved. `is_first`: nothing was answered before.
        """
        whole = self._whole_zones(change.after)
        names = {f"{zone}$" for zone in whole}
        apexes: set[str] = set()
        if not is_first:
            names |= change.names(whole)
            apexes = {*moved} - whole
        return lambda first: self._purge(change, first, names, apexes)

    def _purge(
        self, change: Change, first: Collection[str], changed: Collection[str], apexes: Collection[str]
    ) -> None:
        """Purge these names, and the `apexes` of zones whose serial moved: `change` is answered now.

        PowerDNS purges one name after the other: SRV records when their targets' names are up to date, the
        apex last, since a secondary that sees the new serial takes all else for new, too.
        """
        names = set(changed).difference(first)
        self._on_published({*first, *names}, change)
        due = self._apexes_due(set(apexes).difference(first, names))
        if first or names or due:
            self._purger.purge((*first, *sorted(names, key=_is_service), *due))
        self._purge_later(change.after, names)

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


def _is_service(name: str) -> bool:
    """Whether SRV records stand at this name."""
    return name.startswith("_")
