"""The next snapshot, made of the zones and the views of their pools. Pure: chance and time come in."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rspdns.pool_state import PoolState, state_of
from rspdns.records import site_nodes
from rspdns.snapshot import Node, SiteAnswers, Snapshot, ZoneAnswers
from rspdns.views import PoolView
from rspdns.zone import Site, Zone

REDRAW_S = 1
"""Records chosen by chance are drawn again after the TTL, but not more often than this, in seconds."""


def build(
    zones: Sequence[Zone],
    views: Mapping[str, PoolView],
    previous: Snapshot | None,
    now: float,
    serial: int,
    draw: random.Random,
    *,
    max_stale_s: float = 3600.0,
    is_asked_for: Callable[[str], bool] = lambda handle: True,
) -> Snapshot:
    """Answer everything anew, sharing with `previous` what did not change.

    A pool without an entry in `views` was never seen: SERVFAIL. `now` is monotonic. A zone whose records
    changed gets `serial`, the others keep theirs. `is_asked_for` tells of a pool handle whether anybody
    looked it up lately: for the others chance need not choose anew every TTL.

    Call it again on every change of the views, and when the snapshot's `rebuild_at_s` comes: weights grow,
    chance draws again, what is too old is served no more.
    """
    before = previous if previous is not None else Snapshot()
    moment = _Moment(views, now, draw, max_stale_s, is_asked_for)
    old_sites = {site.name: site for zone in before.zone_answers.values() for site in zone.sites}
    answers: dict[str, ZoneAnswers] = {}
    due = [float("inf")]
    changed = _changed(before.views, views)
    for zone in zones:
        sites = []
        for site in zone.sites:
            old = old_sites.get(site.name)
            if old is None or old.source[0] is not site or not changed.isdisjoint(site.handles):
                new = moment.site(site, old, zone.config.live_ttl_s)
            elif now < moment.due_at_s(site, old):  # most of a thousand sites, a hundred times a second
                new = old
            else:
                new = moment.site(site, old, zone.config.live_ttl_s)
            sites.append(new)
            due.append(moment.due_at_s(site, new))
        answers[zone.name] = _zone(zone, tuple(sites), before.zone_answers.get(zone.name), serial)
    return Snapshot(answers, _all_nodes(answers, before), min(due), dict(views))


def _changed(before: Mapping[str, PoolView], after: Mapping[str, PoolView]) -> set[str]:
    """The pools whose views are not the very same."""
    gone = before.keys() - after.keys()
    return gone | {handle for handle, view in after.items() if before.get(handle) is not view}


@dataclass(frozen=True, slots=True)
class _Moment:
    """What all sites of one build have in common."""

    views: Mapping[str, PoolView]
    now: float
    draw: random.Random
    max_stale_s: float
    is_asked_for: Callable[[str], bool]

    def due_at_s(self, site: Site, answers: SiteAnswers) -> float:
        """When time alone calls for new answers of the site."""
        if answers.redraw_at_s < answers.rebuild_at_s and any(map(self.is_asked_for, site.handles)):
            return answers.redraw_at_s
        return answers.rebuild_at_s

    def site(self, site: Site, before: SiteAnswers | None, ttl_s: int) -> SiteAnswers:
        """The site's answers: those of before when what they are made of is the same and no time has come."""
        seen = [
            [self.views.get(handle, PoolView(handle)) for handle in pool.config.shards] for pool in site.pools
        ]
        source = (site, seen)
        if before is not None and before.source == source and self.now < self.due_at_s(site, before):
            return before
        memory = before.memory if before is not None else {}
        states = [
            state_of(pool, of_pool, memory.get(pool.owner), self.now, self.max_stale_s)
            for pool, of_pool in zip(site.pools, seen, strict=True)
        ]
        ingredients = tuple(state.ingredients for state in states)
        if before is not None and before.ingredients == ingredients and self.now < before.redraw_at_s:
            # A load report that moves no weight is no reason to draw again: that would be a purge.
            nodes, redraw_at_s = before.nodes, before.redraw_at_s
        else:
            nodes, redraw_at_s = self._new_nodes(site, states, before, ttl_s)
        return SiteAnswers(
            name=site.name,
            nodes=nodes,
            source=source,
            ingredients=ingredients,
            memory={state.pool.owner: state.memory for state in states if state.memory is not None},
            rebuild_at_s=min((state.rebuild_at_s for state in states), default=float("inf")),
            redraw_at_s=redraw_at_s,
        )

    def _new_nodes(
        self, site: Site, states: Sequence[PoolState], before: SiteAnswers | None, ttl_s: int
    ) -> tuple[Mapping[str, Node], float]:
        """The nodes of a site, those of before when they are equal, and when chance may draw again."""
        nodes, drawn = site_nodes(site, states, ttl_s, self.draw)
        redraw_at_s = self.now + max(REDRAW_S, ttl_s) if drawn else float("inf")
        return (before.nodes if before is not None and before.nodes == nodes else nodes), redraw_at_s


def _zone(zone: Zone, sites: tuple[SiteAnswers, ...], before: ZoneAnswers | None, serial: int) -> ZoneAnswers:
    """The zone's answers; with the serial of before when no record changed."""
    if before is not None and before.fixed is zone.fixed and _same_nodes(before.sites, sites):
        serial = before.serial
    soa = zone.static.soa.record(zone.name, serial, zone.config.negative_ttl_s)
    return ZoneAnswers(zone.name, serial, soa, zone.fixed, sites)


def _same_nodes(before: Sequence[SiteAnswers], after: Sequence[SiteAnswers]) -> bool:
    return len(before) == len(after) and all(a.nodes is b.nodes for a, b in zip(before, after, strict=True))


def _all_nodes(answers: Mapping[str, ZoneAnswers], before: Snapshot) -> Mapping[str, Node]:
    """Every node by name; a copy of the table of before, patched, when the zones are the same."""
    old = before.zone_answers
    if answers.keys() != old.keys() or any(answers[name].fixed is not old[name].fixed for name in answers):
        # A zone may lie inside another one of ours: the names it has are its own.
        outer_first = sorted(answers.values(), key=lambda zone: zone.name.count("."))
        return {name: node for zone in outer_first for name, node in zone.nodes()}
    changed = [zone for zone in answers.values() if not _same_nodes(old[zone.name].sites, zone.sites)]
    if not changed:
        return before.nodes
    nodes = dict(before.nodes)
    for zone in changed:
        for site, old_site in zip(zone.sites, old[zone.name].sites, strict=True):
            if site.nodes is not old_site.nodes:
                for name in old_site.nodes.keys() - site.nodes.keys():
                    del nodes[name]
                nodes.update((name, zone.with_soa(name, node)) for name, node in site.nodes.items())
        nodes[zone.name] = zone.with_soa(zone.name, _apex(zone))
    return nodes


def _apex(zone: ZoneAnswers) -> Node:
    """The node at the zone's apex, which a pool named "@" has made or the zone file."""
    return next(
        (site.nodes[zone.name] for site in zone.sites if zone.name in site.nodes),
        zone.fixed.get(zone.name, Node()),
    )
