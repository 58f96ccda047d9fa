"""One immutable value that answers every DNS question, swapped in one assignment.

Names are in lower case without the final dot, as PowerDNS's remote-backend protocol is asked for them here.
A snapshot is made of one `ZoneAnswers` for each zone, and those of one `SiteAnswers` for each name that
carries pools; what did not change is shared with the snapshot before.

`ZoneNumbers` are those by which PowerDNS lists zones (`id` of getAllDomains, `zone-id` of a look-up).
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rspdns.answers.pool_state import PoolState
from rspdns.rrset import MOST_LABELS, Node, Record
from rspdns.zones.near import AskerPrefix
from rspdns.zones.zone import Site, Zone

LIMIT = 2**30
"""Numbers of zones are below it; those above stand for moments of signed zones (`rspdns.pdns.domain_ids`)."""


def zone_id(zone: str) -> int:
    """Return the number a zone has unless another zone has it: the same after every restart and reload."""
    return zlib.crc32(zone.encode()) % LIMIT


@dataclass(frozen=True, slots=True)
class ZoneNumbers:
    """One number for each zone, and one zone for each number."""

    by_zone: Mapping[str, int] = field(default_factory=dict)
    by_number: Mapping[int, str] = field(default_factory=dict)

    def of(self, zone: str) -> int:
        """The number of a zone; -1, PowerDNS's word for "unknown", for a zone that is not served."""
        return self.by_zone.get(zone, -1)

    def zone(self, number: object) -> str | None:
        """The zone of a number; None if no zone has it."""
        return self.by_number.get(number) if isinstance(number, int) else None

    def following(self, zones: Collection[str]) -> ZoneNumbers:
        """The numbers of `zones`, which now are served: a zone that was served before keeps its number."""
        if self.by_zone.keys() == set(zones):
            return self
        by_zone = {zone: self.by_zone[zone] for zone in zones if zone in self.by_zone}
        taken = set(by_zone.values())
        for zone in sorted(set(zones) - by_zone.keys()):
            number = zone_id(zone)
            while number in taken:
                number = (number + 1) % LIMIT
            taken.add(number)
            by_zone[zone] = number
        return ZoneNumbers(by_zone, {number: zone for zone, number in by_zone.items()})


ANY = "ANY"
SOA = "SOA"
LIVE_TYPES = frozenset({"SRV", "A", "AAAA", "NAPTR", "HTTPS", "SVCB"})
"""The types that pools give; all else comes from the zone file."""


@dataclass(frozen=True, slots=True)
class Found:
    """At least one record."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """No record of that name and type.

    `exists` tells NODATA from NXDOMAIN: the name exists, with other types or as an empty non-terminal (RFC
    8020). PowerDNS learns of an empty non-terminal from a record of type `ENT` with an empty content.
    """

    exists: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """The truth is not known: SERVFAIL, with the reason in words for the log."""

    reason: str


LookupResult = Found | Nothing | Failure
NODATA = Nothing(exists=True)
NXDOMAIN = Nothing(exists=False)


class NodeByAsker(NamedTuple):
    """The node of a name for an asker; None: there is none. `scope` is the length of the prefix that it is
    for."""

    node: Node | None
    scope: int


class AnswersByAsker(Protocol):
    """The answers at the `services` of a site where these depend on the asker."""

    replies: dict[Hashable, tuple[Node | None, bytes]]
    """Replies by what they answer, each with the node that it was made of: of the responder alone."""

    def answer(self, name: str, asker: AskerPrefix, now: float) -> NodeByAsker:
        """The node of a name for an asker."""

    def of_class(
        self, orders: Sequence[Sequence[str] | None], draw: random.Random
    ) -> tuple[Mapping[str, Node], bool]:
        """The nodes for askers with these orders, pool by pool, and whether chance chose them."""


class SiteAnswers(NamedTuple):
    """The answers at one `<name>.<zone>` and below: the records and the targets of all its pools.

    `site` is what they were made for, `states` the state of each pool in the site's order;
    `rebuild_at_s` (monotonic) is when time alone changes them, `redraw_at_s` when what chance chose may be
    chosen anew; infinity for never. `redraw` lets chance choose again, and returns the nodes; `transferred`
    returns those of a zone transfer, which hold whole pools. Both are None where chance had no part.
    `by_asker` has the answers that depend on the asker; the nodes are for those that nothing is known of.
    """

    name: str
    nodes: Mapping[str, Node]
    site: Site
    states: tuple[PoolState, ...]
    rebuild_at_s: float
    redraw_at_s: float
    services: tuple[str, ...]
    """The names that may have records that name targets: all but these."""
    redraw: Callable[[random.Random], Mapping[str, Node]] | None = None
    transferred: Callable[[], Mapping[str, Node]] | None = None
    by_asker: AnswersByAsker | None = None


@dataclass(frozen=True, slots=True)
class ZoneAnswers:
    """One zone: the SOA, the nodes that only the configuration and the zone file determine, and the sites."""

    name: str
    serial: int
    soa: Record
    fixed: Mapping[str, Node]
    sites: tuple[SiteAnswers, ...]
    fixed_services: tuple[str, ...] = ()
    """Which of the `fixed` nodes have records that name targets."""
    site_by_name: Mapping[str, int] = field(default_factory=dict)
    """By name, targets apart, which of the sites it belongs to (`zones.zone.Zone.site_by_name`)."""

    def table(self) -> ZoneNodes:
        """`nodes()` by name."""
        return ZoneNodes(self)

    def nodes(self) -> Iterator[tuple[str, Node]]:
        """Every node of the zone, the SOA first among the apex's records."""
        for part in (self.fixed, *(site.nodes for site in self.sites)):
            yield from ((name, self.with_soa(name, node)) for name, node in part.items())

    def transferred_records(self) -> Iterator[Record]:
        """Every record of a zone transfer, the SOA first: whole pools, not the members drawn for answers."""
        yield self.soa
        for part in (self.fixed, *(_transferred(site) for site in self.sites)):
            for node in part.values():
                yield from node.records

    def with_soa(self, name: str, node: Node) -> Node:
        """The node as it is served: with the SOA if it is the apex's."""
        if name != self.name:
            return node
        return Node((self.soa, *node.records), node.failure, node.below)


def _transferred(site: SiteAnswers) -> Mapping[str, Node]:
    return site.nodes if site.transferred is None else site.transferred()


class ZoneNodes(Mapping[str, Node]):
    """Every node of a zone by name, found where it stands: no table to make at each change.

    A name is a site's own, or that of a target (one label below), or one that no pool changes.
    """

    __slots__ = ("_apex", "_zone")

    def __init__(self, zone: ZoneAnswers) -> None:
        self._zone = zone
        self._apex: Node | None = None
        """The very same at every look-up, since replies are kept by it."""

    def get(self, name: str, default: Any = None) -> Any:
        """The node at this name, with the SOA at the apex."""
        zone = self._zone
        if name == zone.name and self._apex is not None:
            return self._apex
        index = zone.site_by_name.get(name)
        if index is None:
            index = zone.site_by_name.get(name.partition(".")[2])
        node = zone.sites[index].nodes.get(name) if index is not None else None
        if node is None:
            node = zone.fixed.get(name)
        if node is None:
            return default
        if name == zone.name:
            node = self._apex = zone.with_soa(name, node)
        return node

    def __getitem__(self, name: str) -> Node:
        node: Node | None = self.get(name)
        if node is None:
            raise KeyError(name)
        return node

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        of_sites = {name: None for site in self._zone.sites for name in site.nodes}
        return iter(dict.fromkeys(self._zone.fixed) | of_sites)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All answers at one moment. `rebuild_at_s` (monotonic) is when time alone calls for the next build,
    `asked_for` the pools for which chance draws again (None: all).

    `most_labels` is how many labels a name of these zones can have at most. Deeper names are not climbed
    label by label: a look-up costs the same however deep its name is.

    `nodes` are by zone and name, since a zone may lie below another one of ours. The same name then has other
    records in each of them: the apex of the inner zone has NS and DS in the outer one. `numbers` is what
    PowerDNS knows each zone by.
    """

    zone_answers: Mapping[str, ZoneAnswers] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, Node]] = field(default_factory=dict)
    rebuild_at_s: float = float("inf")
    asked_for: frozenset[str] | None = None
    most_labels: int = MOST_LABELS
    numbers: ZoneNumbers = field(default_factory=ZoneNumbers)
    made_of: Sequence[Zone] = ()
    """The zones of the configuration."""

    def by_asker(self, zone: str | None, name: str) -> AnswersByAsker | None:
        """The answers of a name, if these depend on the asker."""
        answers = self.zone_answers.get(zone) if zone is not None else None
        index = answers.site_by_name.get(name) if answers is not None else None
        return answers.sites[index].by_asker if answers is not None and index is not None else None

    def zone_of(self, name: str) -> str | None:
        """The zone that holds `name`, the innermost one; None for a name outside all zones."""
        if name in self.zone_answers:
            return name
        return next((above for above in self._above(name) if above in self.zone_answers), None)

    def lookup(
        self, name: str, qtype: str, zone: str | None = None, by_asker: Node | None = None
    ) -> LookupResult:
        """Answer one question from `zone`; from the innermost zone that holds `name`, if it is None.

        `name` in lower case without the final dot; `qtype` as text, "ANY" for all. `by_asker` is the node of
        the name for an asker.

        A question for a type that pools do not give (SOA, NS) is answered even where the pool's records are
        not known; ANY is not, since it would show a part as the whole.
        """
        if zone is None:
            zone = self.zone_of(name)
        nodes = self.nodes.get(zone) if zone is not None else None
        if nodes is None:
            return NXDOMAIN
        node = nodes.get(name)
        if node is None:
            return self._below(name, nodes)
        if by_asker is not None and zone is not None:
            node = self.zone_answers[zone].with_soa(name, by_asker)
        if qtype == ANY:
            if node.failure:
                return Failure(node.failure)
            return Found(node.records) if node.records else NODATA
        records = tuple(record for record in node.records if record.type == qtype)
        if records:
            return Found(records)
        if node.failure and qtype in LIVE_TYPES:
            return Failure(node.failure)
        return NODATA

    def _below(self, name: str, nodes: Mapping[str, Node]) -> LookupResult:
        """A name without a node: NXDOMAIN, unless it lies below one whose content is not known."""
        for above in self._above(name):
            ancestor = nodes.get(above)
            if ancestor is not None:
                return Failure(ancestor.failure) if ancestor.below and ancestor.failure else NXDOMAIN
        return NXDOMAIN

    def _above(self, name: str) -> Iterator[str]:
        """The names above one that can have a node, the nearest first."""
        rest = name.rsplit(".", self.most_labels)[1:]  # what is deeper than all zones are has no node
        return (".".join(rest[start:]) for start in range(len(rest)))

    def zones(self) -> tuple[ZoneAnswers, ...]:
        """The zones, sorted by name."""
        return tuple(self.zone_answers[name] for name in sorted(self.zone_answers))

    def zone_records(self, zone: str) -> tuple[Record, ...]:
        """Every record of a zone, SOA first (for a zone transfer); empty for a zone not served here."""
        answers = self.zone_answers.get(zone)
        if answers is None:
            return ()
        rest = (record for _, node in answers.nodes() for record in node.records if record.type != SOA)
        return (answers.soa, *rest)
