"""The RRsets that a zone's pools have at a name server without chance. Pure.

The answers of a snapshot show some members, drawn anew each TTL. A name server that is told by DNS UPDATE
gives every answer whole. So SRV records hold all members with their weights, A and AAAA records those
with room.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import dns.name

from rspdns import fitting, names
from rspdns.answers.pool_state import PoolState
from rspdns.answers.records import active, site_nodes, svcb_size
from rspdns.rrset import OtherData, Record, SrvData, SvcbData
from rspdns.zones.zone import Site

ADDRESS_TYPES = ("A", "AAAA")
SERVICE_TYPES = ("SRV", "HTTPS", "SVCB")
"""The types whose records name servers."""
_PRECEDENCE_BYTES = {"SRV": 4, "HTTPS": 2, "SVCB": 2}
"""The bytes of priority and weight, with which the data of a record begin."""
MOST_BYTES = 24_000
"""The most bytes of a pool's SRV records, or of its HTTPS or SVCB records. A message holds them twice: as
they were and as they are to be."""


class RrsetKey(NamedTuple):
    """An RRset: its owner name and type."""

    name: str
    type: str


class Rrset(NamedTuple):
    """The TTL and the data of an RRset, in the canonical form of DNSSEC (RFC 4034 section 6.2); without data
    there is no such RRset."""

    ttl: int
    data: frozenset[bytes]

    def has_the_data_of(self, other: Rrset) -> bool:
        """Whether both are the same, TTL apart: a prerequisite has none."""
        return self.data == other.data

    def has_the_servers_of(self, other: Rrset, kind: str) -> bool:
        """Whether two RRsets of a type in `SERVICE_TYPES` differ by priorities and weights alone."""
        start = _PRECEDENCE_BYTES[kind]
        return {data[start:] for data in self.data} == {data[start:] for data in other.data}


ABSENT = Rrset(0, frozenset())
RRsets = Mapping[RrsetKey, Rrset]


def targets_of(rrset: Rrset) -> list[str]:
    """The target names of an SRV RRset, sorted."""
    return sorted(names.to_text(dns.name.from_wire(data, 6)[0]) for data in rrset.data)


def rrsets_of(site: Site, states: Sequence[PoolState], ttl_s: int) -> dict[RrsetKey, Rrset]:
    """Every RRset that the pools of a site own, those without data too.

    At a target only the address families that it has count.
    """
    states = [_whole(state) for state in states]
    nodes, _ = site_nodes(site, states, ttl_s, random.Random(0))  # noqa: S311 - nothing is left to chance
    owned: dict[RrsetKey, list[Record]] = {RrsetKey(site.name, kind): [] for kind in ADDRESS_TYPES}
    if any(pool.naptr_service is not None for pool in site.pools):
        owned[RrsetKey(site.name, "NAPTR")] = []
    owned |= {RrsetKey(pool.owner, "SRV"): [] for pool in site.pools}
    for pool in site.pools:
        if pool.svcb_owner is not None and pool.config.svcb is not None:
            owned[RrsetKey(pool.svcb_owner, pool.config.svcb.type)] = []
            if pool.svcb_alias is not None:
                alias = RrsetKey(pool.svcb_alias, pool.config.svcb.type)
                owned[alias] = [Record(*alias, SvcbData(0, pool.svcb_owner), ttl_s)]
    targets = {name for state in states for name in state.targets}
    for name, node in nodes.items():
        for record in node.records:
            key = RrsetKey(name, record.type)
            if key in owned or (name in targets and record.type in ADDRESS_TYPES):
                owned.setdefault(key, []).append(record)
    return {key: _rrset(records) for key, records in owned.items()}


def _whole(state: PoolState) -> PoolState:
    """The state of a pool that shows all members; those without room are among the SRV records alone.

    If there are too many members, those of the best priorities are shown; others have no target either.
    """
    labels = _that_fit(state)
    return state._replace(
        pool=replace(state.pool, config=state.pool.config.model_copy(update={"answers": "all"})),
        members={label: state.members[label] for label in labels},
        weights={label: state.weights[label]._replace(overloaded=False) for label in labels},
        targets={
            name: state.targets[name] for name in map(state.pool.target, labels) if name in state.targets
        },
        changed=None,
    )


def _that_fit(state: PoolState) -> list[str]:
    """The labels of the members whose records fit into an RRset of each type."""
    labels = sorted(active(state.weights), key=lambda label: (state.weights[label].priority, label))
    sizes = (fitting.srv_size(state.pool.target(label), 0, 0) for label in labels)
    count = fitting.how_many(state.pool.owner, sizes, MOST_BYTES)
    if (svcb := state.pool.config.svcb) is not None:
        sizes = (svcb_size(svcb, state, label) for label in labels)
        count = min(count, fitting.how_many(state.pool.svcb_owner or "", sizes, MOST_BYTES))
    return labels[:count]


def _rrset(records: list[Record]) -> Rrset:
    if not records:
        return ABSENT
    return Rrset(min(record.ttl for record in records), frozenset(map(_canonical, records)))


def _canonical(record: Record) -> bytes:
    match record.data:
        case SrvData() as srv:
            return srv._replace(target=srv.target.lower()).wire
        case OtherData() as other:
            return other.parsed.to_digestable()
        case data:
            return data.wire
