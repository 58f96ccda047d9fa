"""Keeps the publications: their tasks, and what each should publish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from pool_user import PoolView

from rspdns.answers.pool_state import PoolState
from rspdns.answers.snapshot import Snapshot
from rspdns.publish.configuration import PublishConfig
from rspdns.publish.primary import Primary, WantedRecords
from rspdns.publish.rrsets import RRsets, rrsets_of
from rspdns.status.model import PublicationStatus
from rspdns.zones.zone import Site


class WantedZone:
    """The records that should be published of one zone.

    RRsets stay the very same while nothing of their site changes.
    """

    def __init__(self, zone: str) -> None:
        self._zone = zone
        self._made: dict[str, tuple[Site, tuple[PoolState, ...], RRsets]] = {}

    def records(self, snapshot: Snapshot, views: Mapping[str, PoolView]) -> WantedRecords:
        """Return the RRsets of the snapshot, and which of them are vouched for by these views."""
        zone = next((zone for zone in snapshot.made_of if zone.name == self._zone), None)
        answers = snapshot.zone_answers.get(self._zone)
        if zone is None or answers is None:
            return WantedRecords({}, frozenset(), frozenset(), f"there is no zone {self._zone} any more")
        made = {}
        for of_site in answers.sites:
            known = self._made.get(of_site.name)
            if known is not None and known[0] is of_site.site and known[1] is of_site.states:
                made[of_site.name] = known
                continue
            rrsets: RRsets = rrsets_of(of_site.site, of_site.states, zone.config.live_ttl_s)
            if known is not None and known[2] == rrsets:
                rrsets = known[2]
            made[of_site.name] = of_site.site, of_site.states, rrsets
        self._made = made
        reasons = {site.name: _why_silent(site, views) for site in zone.sites}
        return WantedRecords(
            {name: rrsets for name, (_, _, rrsets) in made.items()},
            frozenset(name for name, why in reasons.items() if why is None),
            frozenset(pool.targets for site in zone.sites for pool in site.pools),
            next((why for why in reasons.values() if why is not None), None),
        )


def _why_silent(site: Site, views: Mapping[str, PoolView]) -> str | None:
    """Why nobody vouches for the pools of a site; None: somebody does."""
    for pool in site.pools:
        for handle in pool.config.shards:
            view = views.get(handle)
            if view is None or not view.known:
                return f"no registrar has told of {pool.owner} yet"
            if view.stale_since_s is not None:
                return f"no registrar can be believed about {pool.owner}"
    return None


class Publications:
    """All publications. `views` gives the belief about the pools."""

    def __init__(self, views: Callable[[], Mapping[str, PoolView]]) -> None:
        self._views = views
        self._snapshot = Snapshot()
        self._primaries: dict[str, tuple[Primary, asyncio.Task[None]]] = {}
        self._is_started = False

    def start(self, configs: Sequence[PublishConfig]) -> None:
        """Begin to publish."""
        self._is_started = True
        self.set(configs)

    def set(self, configs: Sequence[PublishConfig]) -> None:
        """Let these be the publications from now on; those that stay as they are go on."""
        if not self._is_started:
            return  # it begins with the configuration of then
        for name, (primary, task) in list(self._primaries.items()):
            if primary.config not in configs:
                task.cancel()
                del self._primaries[name]
        for config in configs:
            if config.name not in self._primaries:
                primary = Primary(config, self._wanted_by(config.zone))
                task = asyncio.get_running_loop().create_task(primary.run())
                self._primaries[config.name] = primary, task

    def _wanted_by(self, zone: str) -> Callable[[], WantedRecords]:
        wanted = WantedZone(zone)
        return lambda: wanted.records(self._snapshot, self._views())

    def changed(self, snapshot: Snapshot) -> None:
        """These are the answers from now on."""
        self._snapshot = snapshot
        for primary, _ in self._primaries.values():
            primary.wake()

    async def close(self) -> None:
        """Publish no more. The records stay as they are."""
        tasks = [task for _, task in self._primaries.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def problems(self) -> list[str]:
        """The problems for the status."""
        problems = []
        for status in self.statuses():
            if status.problem is not None:
                waiting = f"; {status.waiting} RRsets wait" if status.waiting else ""
                problems.append(f"publish {status.name}: {status.server}: {status.problem}{waiting}")
            elif status.silent is not None:
                problems.append(f"publish {status.name}: records there stay as they are: {status.silent}")
        return problems

    def statuses(self) -> list[PublicationStatus]:
        """Every publication for the status."""
        now = time.monotonic()
        return [primary.status(now) for primary, _ in self._primaries.values()]
