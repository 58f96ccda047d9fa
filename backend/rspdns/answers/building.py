"""The next snapshot, made of the zones and the views of their pools. Pure: chance and time come in."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, is_not

from pool_user import BeliefChange

from rspdns.answers.change import Change, difference
from rspdns.answers.nearness import AskerAnswers, depends_on_asker
from rspdns.answers.pool_state import PoolState, state_of
from rspdns.answers.records import site_nodes, transferred_nodes
from rspdns.answers.snapshot import SiteAnswers, Snapshot, ZoneAnswers
from rspdns.rrset import Node
from rspdns.zones.zone import Site, Zone, live_names

REDRAW_S = 1
"""Records chosen by chance are drawn again after the TTL, but not more often than this, in seconds."""


def build(
    zones: Sequence[Zone],
    believed: BeliefChange,
    previous: Snapshot | None,
    now: float,
    serial: int,
    draw: random.Random,
    *,
    max_stale_s: float = 3600.0,
    asked_for: frozenset[str] | None = None,
    only_changes: bool = False,
) -> Change:
    """Answer everything anew, sharing with `previous` what did not change.

    `believed` is the change of the pools since `previous`. A pool without a view was never seen: SERVFAIL.
    `now` is monotonic. A zone whose records changed gets `serial`, the others keep theirs. `asked_for` are
    the pools that somebody looked up lately (None: all): for the others chance need not choose anew every
    TTL.

    `only_changes`: what time alone calls for is left for the next time, unless the zones are others; so a
    change waits for nothing else.

    Call it again on every change of the belief, and when the snapshot's `rebuild_at_s` comes: weights grow,
    chance draws again, what is too old is served no more.
    """
    before = previous if previous is not None else Snapshot()
    moment = _Moment(believed, now, draw, max_stale_s, asked_for)
    is_nothing_else_due = now < before.rebuild_at_s and moment.asks_for_no_more_than(before)
    if (only_changes or is_nothing_else_due) and _are_same(zones, before):
        return difference(before, _with_changes(zones, before, moment, serial))
    old_sites = {site.name: site for zone in before.zone_answers.values() for site in zone.sites}
    answers: dict[str, ZoneAnswers] = {}
    due = [float("inf")]
    for zone in zones:
        sites = []
        for site in zone.sites:
            old = old_sites.get(site.name)
            if (
                old is not None
                and old.site is site
                and believed.pools.keys().isdisjoint(site.handles)
                and now < moment.due_at_s(site, old)
            ):
                new = old
            else:
                new = moment.site(site, old, zone.config.live_ttl_s)
            sites.append(new)
            due.append(moment.due_at_s(site, new))
        was = before.zone_answers.get(zone.name)
        is_same = was is not None and was.fixed is zone.fixed and _show_the_same(was.sites, sites)
        answers[zone.name] = _zone(zone, tuple(sites), was.serial if was and is_same else serial)
    after = Snapshot(
        answers,
        _all_nodes(answers, before),
        min(due),
        asked_for,
        max((zone.most_labels for zone in zones), default=1),
        before.numbers.following(answers),
        tuple(zones),
    )
    return difference(before, after)


def _with_changes(
    zones: Sequence[Zone],
    before: Snapshot,
    moment: _Moment,
    serial: int,
) -> Snapshot:
    """The snapshot of before with the sites of the changed pools made anew: nothing else is due."""
    made: list[tuple[Zone, dict[int, SiteAnswers]]] = []
    for zone in zones:
        if indexes := {
            index for handle in moment.believed.pools for index in zone.site_indexes.get(handle, ())
        }:
            old_sites, ttl_s = before.zone_answers[zone.name].sites, zone.config.live_ttl_s
            sites = {index: moment.site(zone.sites[index], old_sites[index], ttl_s) for index in indexes}
            made.append((zone, sites))
    answers, nodes = dict(before.zone_answers), before.nodes
    due = [before.rebuild_at_s]
    for zone, sites in made:
        old = answers[zone.name]
        has_moved = any(site.nodes is not old.sites[index].nodes for index, site in sites.items())
        due += (moment.due_at_s(zone.sites[index], site) for index, site in sites.items())
        all_sites = list(old.sites)
        for index, site in sites.items():
            all_sites[index] = site
        new = answers[zone.name] = _zone(zone, tuple(all_sites), serial if has_moved else old.serial)
        if has_moved:
            nodes = {**nodes, zone.name: new.table()}
    return Snapshot(
        answers,
        nodes,
        min(due),
        before.asked_for,
        before.most_labels,
        before.numbers,
        tuple(zones),
    )


def _are_same(zones: Sequence[Zone], before: Snapshot) -> bool:
    """Whether these are the zones of before, of the same reading of their files."""
    if zones is before.made_of:
        return True
    old = before.zone_answers
    return len(zones) == len(old) and all(
        zone.name in old and old[zone.name].fixed is zone.fixed for zone in zones
    )


@dataclass(slots=True)
class _Moment:
    """The values that all sites of one build have in common."""

    believed: BeliefChange
    now: float
    draw: random.Random
    max_stale_s: float
    asked_for: frozenset[str] | None

    def asks_for_no_more_than(self, before: Snapshot) -> bool:
        """Whether every pool that is looked up now was also looked up when `before` was drawn."""
        if before.asked_for is None or self.asked_for is None:
            return before.asked_for is None
        return self.asked_for <= before.asked_for

    def due_at_s(self, site: Site, answers: SiteAnswers) -> float:
        """When time alone calls for new answers of the site."""
        is_asked_for = self.asked_for is None or not self.asked_for.isdisjoint(site.handles)
        return min(answers.redraw_at_s, answers.rebuild_at_s) if is_asked_for else answers.rebuild_at_s

    def site(self, site: Site, before: SiteAnswers | None, ttl_s: int) -> SiteAnswers:
        """The site's answers: those of before when what they are made of is the same and no time has come."""
        old = {state.pool.owner: state for state in before.states} if before is not None else {}
        if before is not None and before.site is not site:  # with another TTL, say
            old = {owner: state._replace(targets={}, view=None) for owner, state in old.items()}
        states = tuple(
            state_of(pool, self.believed, old.get(pool.owner), self.now, self.max_stale_s, ttl_s)
            for pool in site.pools
        )
        is_same = before is not None and before.site is site and _give_the_same(states, before.states)
        transferred = None
        if before is not None and is_same and self.now < before.redraw_at_s:
            # A load report that moves no weight is no reason to draw again: that would be a purge.
            nodes, redraw_at_s, redraw = before.nodes, before.redraw_at_s, before.redraw
            transferred = before.transferred
        else:
            nodes, redraw_at_s = self._new_nodes(site, states, before, ttl_s, is_same=is_same)
            redraw = _redraw(site, states, ttl_s) if redraw_at_s != float("inf") else None
            transferred = partial(transferred_nodes, site, states, ttl_s) if redraw is not None else None
        by_asker = before.by_asker if before is not None and is_same else None
        if depends_on_asker(site) and not (by_asker and before and _give_the_orders(states, before.states)):
            by_asker = AskerAnswers(site, states, ttl_s, self.draw)
        return SiteAnswers(
            name=site.name,
            nodes=nodes,
            site=site,
            states=states,
            rebuild_at_s=min((state.rebuild_at_s for state in states), default=float("inf")),
            redraw_at_s=redraw_at_s,
            services=tuple(live_names(site)),
            redraw=redraw,
            transferred=transferred,
            by_asker=by_asker,
        )

    def _new_nodes(
        self,
        site: Site,
        states: Sequence[PoolState],
        before: SiteAnswers | None,
        ttl_s: int,
        *,
        is_same: bool,
    ) -> tuple[Mapping[str, Node], float]:
        """The nodes of a site, those of before when they are equal, and when chance may draw again.

        If the members are not the same (`is_same`), equal nodes that chance drew are new ones: the serial
        moves, since a zone transfer holds the members that they don't show, too.
        """
        is_redraw_due = before is None or before.site is not site or self.now >= before.redraw_at_s
        kept = {} if before is None or is_redraw_due else before.nodes
        nodes, drawn = site_nodes(site, states, ttl_s, self.draw, kept)
        redraw_at_s = self.now + max(REDRAW_S, ttl_s) if drawn else float("inf")
        if before is not None and not is_redraw_due and drawn:
            redraw_at_s = min(before.redraw_at_s, self.now + REDRAW_S)  # newcomers wait no longer
        is_kept = before is not None and before.nodes == nodes and (is_same or not drawn)
        return (before.nodes if before is not None and is_kept else nodes), redraw_at_s


def _redraw(
    site: Site, states: Sequence[PoolState], ttl_s: int
) -> Callable[[random.Random], Mapping[str, Node]]:
    """Lets chance choose again among the same members; the nodes of their targets stay the same."""
    return lambda draw: site_nodes(site, states, ttl_s, draw)[0]


def _give_the_same(states: Sequence[PoolState], before: Sequence[PoolState]) -> bool:
    """Whether the records of a site are those of before, chance apart."""
    return len(states) == len(before) and all(
        new.gives_the_records_of(old) for new, old in zip(states, before, strict=True)
    )


def _give_the_orders(states: Sequence[PoolState], before: Sequence[PoolState]) -> bool:
    """The same of the records with any other order of the sites."""
    return all(new.gives_the_orders_of(old) for new, old in zip(states, before, strict=True))


def _zone(zone: Zone, sites: tuple[SiteAnswers, ...], serial: int) -> ZoneAnswers:
    """The zone's answers; its serial is that of before when no record changed."""
    soa = zone.static.soa.record(zone.name, serial, zone.config.negative_ttl_s)
    return ZoneAnswers(zone.name, serial, soa, zone.fixed, sites, zone.fixed_services, zone.site_by_name)


def _all_nodes(answers: Mapping[str, ZoneAnswers], before: Snapshot) -> Mapping[str, Mapping[str, Node]]:
    """Every node by zone and name: the very mapping of before of each zone whose nodes are the same."""
    tables = {name: _nodes(zone, before) for name, zone in answers.items()}
    same = tables.keys() == before.nodes.keys() and not any(
        map(is_not, tables.values(), map(before.nodes.get, tables))
    )
    return before.nodes if same else tables


def _nodes(zone: ZoneAnswers, before: Snapshot) -> Mapping[str, Node]:
    old = before.zone_answers.get(zone.name)
    is_same = old is zone or (
        old is not None and old.fixed is zone.fixed and _show_the_same(old.sites, zone.sites)
    )
    return before.nodes[zone.name] if is_same else zone.table()


_NODES = attrgetter("nodes")


def _show_the_same(before: Sequence[SiteAnswers], after: Sequence[SiteAnswers]) -> bool:
    """Whether the nodes of all sites of a zone are the very same."""
    return not any(map(is_not, map(_NODES, before), map(_NODES, after)))
