"""The difference of two snapshots. The build finds it once, for the purge, the replies and the kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import is_not

from rspdns.answers.snapshot import SiteAnswers, Snapshot, ZoneAnswers
from rspdns.rrset import Node, Record, SoaData, SrvData, SvcbData

Nodes = Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class ZoneChange:
    """A zone whose answers may differ. A new zone has no `before`, one that is served no more no `after`."""

    before: ZoneAnswers | None
    after: ZoneAnswers | None
    sites: Sequence[tuple[SiteAnswers, SiteAnswers]] | None
    """The sites that were made anew, before and after. None: the zone came, went or was read anew, and any of
    its names may differ."""

    @property
    def moved_sites(self) -> Sequence[tuple[SiteAnswers, SiteAnswers]]:
        """The sites that the zone has before and after, if their nodes are not the very same."""
        pairs = self.sites
        if pairs is None and self.before is not None and self.after is not None:
            old_sites = {site.name: site for site in self.before.sites}
            pairs = [(old_sites[new.name], new) for new in self.after.sites if new.name in old_sites]
        return [(old, new) for old, new in pairs or () if old.nodes is not new.nodes]

    def parts(self) -> tuple[Sequence[Nodes], Sequence[Nodes]]:
        """Return the nodes of those parts of the zone, before and after, that are not the very same."""
        if self.sites is not None:
            return [old.nodes for old, _ in self.moved_sites], [new.nodes for _, new in self.moved_sites]
        return _all_parts(self.before), _all_parts(self.after)

    def names(self, *, is_purged_whole: bool = False) -> set[str]:
        """Return the names whose answers differ: those to purge from PowerDNS's caches.

        A name with SRV, HTTPS or SVCB records counts as changed when one of their targets did, because its
        packets carry the targets' addresses; so does an alias of HTTPS or SVCB records. The SOA's serial does
        not count: it moves with every change. If the zone `is_purged_whole`, only the names of pools are
        returned, since a zone file may have 100,000 others.
        """
        changed = self._names(is_purged_whole=is_purged_whole)
        return changed | {alias for alias, owner in self._aliases() if owner in changed}

    def _aliases(self) -> Iterator[tuple[str, str]]:
        """Yield the names of aliases in AliasMode, each with the name that it stands for."""
        zones = [zone for zone in (self.before, self.after) if zone is not None]
        sites = [site for zone in zones for site in zone.sites]
        if self.sites is not None:
            sites = [site for pair in self.moved_sites for site in pair]
        for pool in (pool for site in sites for pool in site.site.pools):
            if pool.svcb_alias is not None and pool.svcb_owner is not None:
                yield pool.svcb_alias, pool.svcb_owner

    def _names(self, *, is_purged_whole: bool) -> set[str]:
        zones = [zone for zone in (self.before, self.after) if zone is not None]
        if is_purged_whole:
            sites = [site for zone in zones for site in zone.sites]
            return _changed(_of_sites(self.before), _of_sites(self.after), _services(sites))
        if self.before is None or self.after is None:
            return {name for zone in zones for name, _ in zone.nodes()}
        has_other_soa = _without_serial(self.before.soa) != _without_serial(self.after.soa)
        apex = {self.after.name} if has_other_soa else set[str]()
        return apex | _changed(*self.parts(), self._services(self.before, self.after))

    def reweighed(self) -> Iterator[str]:
        """Yield the names whose answers differ by weights alone: of sites with the same servers, in the same
        order of priorities. Which addresses are drawn follows the weights."""
        for old, new in self.moved_sites if self.sites is not None else ():
            if old.nodes.keys() != new.nodes.keys():
                continue
            moved = [name for name, node in new.nodes.items() if node is not old.nodes[name]]
            changed = [name for name in moved if new.nodes[name] != old.nodes[name]]
            if all(
                name in new.services and _targets(old.nodes[name]) == _targets(new.nodes[name])
                for name in changed
            ):
                yield from changed

    def _services(self, before: ZoneAnswers, after: ZoneAnswers) -> set[str]:
        """The names within the result of `parts()` that may have records that name targets."""
        if self.sites is not None:
            return _services(site for pair in self.moved_sites for site in pair)
        sites = _services((*before.sites, *after.sites))
        return sites.union(before.fixed_services, after.fixed_services)


@dataclass(frozen=True, slots=True)
class Change:
    """The step from one snapshot to the next; `zones` has those zones whose answers are not the very same."""

    before: Snapshot
    after: Snapshot
    zones: Mapping[str, ZoneChange]

    def names(self, purged_whole: Collection[str] = ()) -> set[str]:
        """Return the names whose answers differ in all zones (`ZoneChange.names`)."""
        return {
            name
            for zone, change in self.zones.items()
            for name in change.names(is_purged_whole=zone in purged_whole)
        }

    def reweighed(self) -> set[str]:
        """Return the names whose answers differ by weights alone (`ZoneChange.reweighed`)."""
        return {name for change in self.zones.values() for name in change.reweighed()}


def difference(before: Snapshot, after: Snapshot) -> Change:
    """Return what differs between two snapshots; parts that they share are told by identity."""
    old, new = before.zone_answers, after.zone_answers
    zones = {name: ZoneChange(zone, None, None) for name, zone in old.items() if name not in new}
    for name, zone in new.items():
        was = old.get(name)
        if was is not zone:
            zones[name] = ZoneChange(was, zone, None if was is None else remade_sites(was, zone))
    return Change(before, after, zones)


def remade_sites(before: ZoneAnswers, after: ZoneAnswers) -> Sequence[tuple[SiteAnswers, SiteAnswers]] | None:
    """Return the sites of a zone that were made anew, before and after; None if the zone was read anew."""
    if before.fixed is not after.fixed or len(before.sites) != len(after.sites):
        return None
    different = map(is_not, before.sites, after.sites)
    return list(compress(zip(before.sites, after.sites, strict=True), different))


def _all_parts(zone: ZoneAnswers | None) -> list[Nodes]:
    return [zone.fixed, *_of_sites(zone)] if zone is not None else []


def _of_sites(zone: ZoneAnswers | None) -> list[Nodes]:
    return [site.nodes for site in zone.sites] if zone is not None else []


def _targets(node: Node) -> frozenset[object]:
    """The targets of a node's SRV, HTTPS and SVCB records, with all else in them but the weight."""
    return frozenset(
        record.data._replace(weight=0) if isinstance(record.data, SrvData) else record.data
        for record in node.records
        if isinstance(record.data, SrvData | SvcbData)
    )


def _services(sites: Iterable[SiteAnswers]) -> set[str]:
    """The names of sites that may have records that name targets."""
    return {name for site in sites for name in site.services}


def _changed(before: Sequence[Nodes], after: Sequence[Nodes], services: Collection[str]) -> set[str]:
    """The names whose nodes differ, and those of the `services` whose records name one of them.

    The nodes are compared by identity first, without Python's own loop: there may be 100,000.
    """
    old, new = _merged(before), _merged(after)
    others = compress(new, map(is_not, new.values(), map(old.get, new)))
    names = {name for name in others if new[name] != old.get(name)} | (old.keys() - new.keys())
    serving = (nodes[name] for nodes in (old, new) for name in services if name in nodes)
    return names | {
        record.name
        for node in serving
        for record in node.records
        if isinstance(record.data, SrvData | SvcbData) and record.data.target in names
    }


def _merged(parts: Sequence[Nodes]) -> Nodes:
    if len(parts) == 1:
        return parts[0]
    merged: dict[str, Node] = {}
    for part in parts:
        merged.update(part)
    return merged


def _without_serial(soa: Record) -> Record:
    return soa._replace(data=soa.data._replace(serial=0)) if isinstance(soa.data, SoaData) else soa
