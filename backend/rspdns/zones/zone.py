"""A zone as it is served: its configuration, its fixed records, and the names its pools own.

<service>.<name>.<zone>         SRV                 one owner for each pool
<name>.<zone>                   A, AAAA, NAPTR      a site: all pools with this name
the same, or _<port>._https...  HTTPS, SVCB         one owner for each pool with `svcb`
<PE id>.<label>.<name>.<zone>   A, AAAA             the targets
the cells' own names            -                   the targets of a pool of `cells`: other zones have them

`PoolNames` finds the pools that a look-up is about, `probing_by_handle` says how their members are probed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from pool_user import PoolProbing, ProbePlan

from rspdns import names
from rspdns.rrset import MOST_LABELS, Node, Record, SrvData, SvcbData
from rspdns.zones.asker_classes import MOST_CLASSES, AskerClasses
from rspdns.zones.configuration import PoolConfig, ZoneConfig, naptr_service_of
from rspdns.zones.file import StaticZone
from rspdns.zones.near import AnyNetwork, NearOrder, NearTable
from rspdns.zones.sites import SiteRules, Sites


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """One pool in a zone: the names of its records."""

    config: PoolConfig
    owner: str
    """The owner name of its SRV records."""
    targets: str
    """The name its targets are below."""
    naptr_service: str | None
    position: int
    """Its position among the [[pool]] tables of the zone, from 0."""
    sites: SiteRules | None = None
    """The rules by which the sites of its members follow each other."""
    near: NearTable | None = None
    """The orders of the sites for askers in some networks."""
    svcb_owner: str | None = None
    """The owner name of its HTTPS or SVCB records; None: it has none."""
    svcb_alias: str | None = None
    """The name at the zone's apex that is an alias of these records."""

    def target(self, label: str) -> str:
        """The target name of the member with this label; a cell's label is its name."""
        return label if self.config.cells else f"{label}.{self.targets}"

    def label_of(self, target: str) -> str | None:
        """The label of the member that has this target name; None for another name."""
        if self.config.cells:
            return target
        label, _, below = target.partition(".")
        return label if below == self.targets else None

    @property
    def depends_on_asker(self) -> bool:
        """Whether its answers are not the same for all."""
        return self.near is not None or self.config.affinity is not None


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """All pools of one name. `static` are the zone file's records at this name and at the pools' owners."""

    name: str
    pools: tuple[Pool, ...]
    static: Mapping[str, tuple[Record, ...]] = field(default_factory=dict)
    handles: frozenset[str] = frozenset()
    """The handles of all its pools."""
    classes: AskerClasses | None = None
    """The classes of askers that `near` makes, if the answers depend on nothing else of the asker; None:
    there are none, or too many."""


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """One zone. Made once for each reading of its files, and compared by identity."""

    config: ZoneConfig
    static: StaticZone
    sites: tuple[Site, ...]
    fixed: Mapping[str, Node]
    """The nodes that pools do not change: fixed records elsewhere, and empty non-terminals."""
    site_indexes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By pool handle, which of the sites it has a part in."""
    most_labels: int = MOST_LABELS
    """The most labels of any of its names, members' target names included."""
    fixed_services: tuple[str, ...] = ()
    """Which of the `fixed` nodes have records that name targets: SRV records, aliases."""
    site_by_name: Mapping[str, int] = field(default_factory=dict)
    """By name, which of the sites it belongs to; targets, which come and go, are not among them."""

    @property
    def name(self) -> str:
        """The name of the zone's apex."""
        return self.config.zone


def make_zone(
    config: ZoneConfig,
    static: StaticZone,
    positions: Sequence[int] | None = None,
    sites_of_all: Sites | None = None,
    near_files: Mapping[str, Mapping[AnyNetwork, NearOrder]] = MappingProxyType({}),
) -> Zone:
    """Put the pools of a checked configuration and the zone's fixed records together.

    `positions` are those of the pools among the [[pool]] tables where `config` doesn't have them all.
    `sites_of_all` are those of rspdns.toml, None where they are not known. `near_files` are what the files of
    this name hold.
    """
    tables: dict[str, NearTable] = {}
    pools: dict[str, list[Pool]] = {}
    for position, pool in zip(positions or range(len(config.pools)), config.pools, strict=True):
        name = names.join(pool.name, config.zone)
        pools.setdefault(name, []).append(
            Pool(
                config=pool,
                owner=names.join(pool.service, name),
                targets=names.join(pool.target_label, name),
                naptr_service=pool.naptr_service or naptr_service_of(pool.service),
                position=position,
                sites=pool.site_rules(sites_of_all or Sites()),
                near=_near(pool, near_files, tables),
                svcb_owner=pool.svcb.owner(name) if pool.svcb is not None else None,
                svcb_alias=pool.svcb.owner(config.zone)
                if pool.svcb is not None and pool.svcb.apex_alias
                else None,
            )
        )
    records = _with_aliases(static, (pool for of_name in pools.values() for pool in of_name), config)
    sites = tuple(
        Site(
            name,
            tuple(of_name),
            _static_at(name, of_name, records),
            frozenset(handle for pool in of_name for handle in pool.config.shards),
            _classes(of_name),
        )
        for name, of_name in pools.items()
    )
    site_indexes: dict[str, tuple[int, ...]] = {}
    for index, site in enumerate(sites):
        for handle in site.handles:
            site_indexes[handle] = (*site_indexes.get(handle, ()), index)
    fixed = _fixed(config.zone, sites, records)
    most_dots = max(name.count(".") for name in (*fixed, *(n for site in sites for n in live_names(site))))
    services_of_file = (
        name
        for name, node in fixed.items()
        if any(isinstance(record.data, SrvData | SvcbData) for record in node.records)
    )
    # A member's name has a label more.
    site_by_name = {name: index for index, site in enumerate(sites) for name in live_names(site)}
    return Zone(
        config, static, sites, fixed, site_indexes, most_dots + 2, tuple(services_of_file), site_by_name
    )


def _near(
    pool: PoolConfig,
    near_files: Mapping[str, Mapping[AnyNetwork, NearOrder]],
    tables: dict[str, NearTable],
) -> NearTable | None:
    """The orders of a pool by network. Pools with the same file and no more share one of the `tables`."""
    of_file = near_files.get(pool.near_file or "", {})
    if pool.near_file is None or pool.near:
        return NearTable({**of_file, **pool.near}) if pool.near else None
    if pool.near_file not in tables:
        tables[pool.near_file] = NearTable(of_file)
    return tables[pool.near_file]


def _classes(pools: Sequence[Pool]) -> AskerClasses | None:
    tables = [pool.near for pool in pools]
    if not any(tables) or any(pool.config.affinity is not None for pool in pools):
        return None
    classes = AskerClasses(tables)
    return classes if len(classes.orders) <= MOST_CLASSES else None


def without_lines(zone: Zone) -> Zone:
    """The zone without the lines of its records, which only its checks need."""
    return replace(zone, static=replace(zone.static, lines={}))


def sharing(zone: Zone, before: Zone) -> Zone:
    """The zone with the nodes and records of `before` where they are equal: what did not change is then the
    very same, and need not be compared again, nor let go."""
    return replace(
        zone,
        fixed=_shared(zone.fixed, before.fixed),
        static=replace(zone.static, records=_shared(zone.static.records, before.static.records)),
    )


_Part = TypeVar("_Part")


def _shared(after: Mapping[str, _Part], before: Mapping[str, _Part]) -> dict[str, _Part]:
    return {name: old if (old := before.get(name)) == part else part for name, part in after.items()}


def live_names(site: Site) -> list[str]:
    """The names whose nodes the pools of a site make, targets apart."""
    return _live_names(site.name, site.pools)


def _live_names(name: str, pools: Sequence[Pool]) -> list[str]:
    owners = [name, *(owner for pool in pools for owner in (pool.owner, pool.targets))]
    of_svcb = (pool.svcb_owner for pool in pools)
    return [*owners, *(owner for owner in of_svcb if owner is not None and owner != name)]


_Records = Mapping[str, tuple[Record, ...]]


def _with_aliases(static: StaticZone, pools: Iterable[Pool], config: ZoneConfig) -> _Records:
    """The records of the zone file, and those in AliasMode that its pools have at the apex."""
    records = static.records
    for pool in pools:
        if pool.svcb_alias is not None and pool.svcb_owner is not None and pool.config.svcb is not None:
            data = SvcbData(0, pool.svcb_owner)
            alias = Record(pool.svcb_alias, pool.config.svcb.type, data, config.live_ttl_s)
            records = {**records, alias.name: (*records.get(alias.name, ()), alias)}
    return records


def _static_at(name: str, pools: list[Pool], records: _Records) -> dict[str, tuple[Record, ...]]:
    return {owner: records[owner] for owner in _live_names(name, pools) if owner in records}


def _fixed(zone: str, sites: tuple[Site, ...], static: _Records) -> dict[str, Node]:
    live = {name for site in sites for name in live_names(site)}
    nodes = {
        name: Node(_with_authority(zone, records, static))
        for name, records in static.items()
        if name not in live
    }
    for name in [*static, *live]:
        for ancestor in names.ancestors(name, zone):
            if ancestor not in live:
                nodes.setdefault(ancestor, Node())
    if zone not in live:
        nodes.setdefault(zone, Node())
    return nodes


def _with_authority(zone: str, records: tuple[Record, ...], static: _Records) -> tuple[Record, ...]:
    """The records of one name, marked as not ours where the zone hands over to another one: glue, and all but
    DS of the delegation itself."""
    name = records[0].name
    if _is_delegation(name, zone, records):
        return tuple(record._replace(auth=record.type == "DS") for record in records)
    if any(_is_delegation(above, zone, static.get(above, ())) for above in names.ancestors(name, zone)):
        return tuple(record._replace(auth=False) for record in records)
    return records


def _is_delegation(name: str, zone: str, records: tuple[Record, ...]) -> bool:
    return name != zone and any(record.type == "NS" for record in records)


class PoolNames:
    """From a name in a question to the handles of the pools whose records stand there."""

    def __init__(self, zones: Sequence[Zone]) -> None:
        own: dict[str, list[str]] = {}
        targets: dict[str, tuple[str, ...]] = {}
        for zone in zones:
            for site in zone.sites:
                for pool in site.pools:
                    own.setdefault(site.name, []).extend(pool.config.shards)
                    own.setdefault(pool.owner, []).extend(pool.config.shards)
                    if pool.svcb_owner is not None and pool.svcb_owner != site.name:
                        own.setdefault(pool.svcb_owner, []).extend(pool.config.shards)
                    targets[pool.targets] = pool.config.shards
        self._own: Mapping[str, tuple[str, ...]] = {name: tuple(handles) for name, handles in own.items()}
        self._targets = targets

    def handles(self, name: str) -> tuple[str, ...]:
        """Return the handles of the pools at `name`, or whose target it is; none for another name."""
        return self._own.get(name) or self._targets.get(name.partition(".")[2], ())


def handles_of(pools: Iterable[Pool], wanted: Collection[str]) -> frozenset[str]:
    """The handles of the pools whose names of SRV records are wanted; a wanted handle counts, also when it is
    not configured any more."""
    return frozenset(wanted).union(*(pool.config.shards for pool in pools if pool.owner in wanted))


def probing_by_handle(zones: Iterable[Zone]) -> Mapping[str, PoolProbing]:
    """The probing of every pool handle of the zones (a handle in several is verified in the same way). No
    gateway of a cell is probed: it serves nobody."""
    return {
        handle: PoolProbing(plan_of(pool.config), pool.config.shards[0])
        for zone in zones
        for site in zone.sites
        for pool in site.pools
        if not pool.config.cells
        for handle in pool.config.shards
    }


def plan_of(pool: PoolConfig) -> ProbePlan:
    """The plan for one pool: as `verify` says, or for when its registrars are lost."""
    if pool.verify is None:
        is_sip = pool.service in ("_sip._udp", "_sips._udp")
        return ProbePlan("sip-options" if is_sip else "connect")
    return ProbePlan(
        pool.verify,
        pool.verify_interval_ms / 1000,
        pool.verify_timeout_ms / 1000,
        pool.verify_fall,
        pool.verify_rise,
        verified=True,
        report=pool.report_unreachable,
    )
