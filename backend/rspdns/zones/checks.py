"""The conditions between the pools of a zone, its fixed records, and all zones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import dns.rdtypes.IN.NAPTR
from daemon_kit.config_file import ConfigurationError, TomlDocument, find

from rspdns import fitting, names
from rspdns.rrset import OtherData, Record
from rspdns.zones.zone import Pool, Site, Zone, live_names

_ALONE = ("CNAME", "DNAME", "NS")
"""Types that leave no room for live records at their name, or below it."""


@dataclass(frozen=True, slots=True)
class Readable:
    """A zone, or what can be read of one whose files have errors."""

    document: TomlDocument
    zone: Zone
    doubtful: frozenset[int] = frozenset()
    """Positions of the pools with an error: those left out, and those that an unknown key may be about."""
    unread: frozenset[str] | None = frozenset()
    """Owner names of what could not be read in the master file; None: any name could have some of that."""

    def is_read(self, name: str) -> bool:
        """Tell whether every record at `name` in the master file could be read."""
        return self.unread is not None and name not in self.unread

    def doubtful_names(self) -> set[str]:
        """Return the names of the doubtful pools."""
        located = find(self.document.data, ("pool", "*", "name"))
        return {
            names.join(name.lower().rstrip("."), self.zone.name)
            for location, name in located
            if location[1] in self.doubtful and isinstance(name, str)
        }


def problems_of_zone(readable: Readable) -> list[ConfigurationError]:
    """The problems in one zone, without those that only follow from an error already shown."""
    document, zone = readable.document, readable.zone
    doubtful = readable.doubtful_names()
    problems: list[ConfigurationError] = []
    taken = {
        name: pool.config.target_label
        for site in zone.sites
        for pool in site.pools
        for name in (site.name, pool.owner)
    }
    for site in zone.sites:
        bad_names = [(pool, *problem) for pool in site.pools for problem in _name_problems(pool)]
        problems += [_at(document, pool, key, text) for pool, key, text in bad_names]
        if not bad_names and (text := _naptr_problem(site)):
            problems.append(_at(document, site.pools[-1], "name", text))
        for pool in site.pools:
            problems += [_at(document, pool, "svcb", text) for text in _svcb_problems(zone, pool)]
            problems += [_at(document, pool, "cells", text) for text in _cell_problems(readable, pool)]
            if pool.svcb_owner not in (None, site.name) and (other := taken.get(pool.svcb_owner or "")):
                text = f"its records would stand at {pool.svcb_owner}, a name of the pool {other!r}"
                problems.append(_at(document, pool, "svcb", text))
            is_static = pool.config.when_empty == "static"
            if is_static and readable.is_read(pool.owner) and not _has(site, pool.owner, ("SRV",)):
                text = f"the zone file has no SRV record at {pool.owner}"
                problems.append(_at(document, pool, "when_empty", text))
        problems += _static_problems(zone, site, in_doubt=site.name in doubtful)
    problems += [_at(document, pool, "label", text) for pool, text in _label_problems(zone)]
    problems += _delegation_problems(zone)
    problems += _name_server_problems(readable, doubtful)
    return problems


def problems_between(zones_read: Sequence[Readable]) -> list[ConfigurationError]:
    """The problems between zones: a zone in two files, a name in two, a handle with two `accept` or two
    ways to be verified."""
    problems = []
    zones: dict[str, str] = {}
    pools: dict[str, tuple[Pool, Readable]] = {}
    for readable in zones_read:
        document, zone = readable.document, readable.zone
        if zone.name in zones:
            text = f"the zone {zone.name} is already in {zones[zone.name]}"
            problems.append(document.error(("zone",), text))
        zones.setdefault(zone.name, document.file)
        for pool in (pool for site in zone.sites for pool in site.pools):
            for handle in pool.config.shards:
                other, first = pools.setdefault(handle, (pool, readable))
                file = first.document.file
                in_doubt = pool.position in readable.doubtful or other.position in first.doubtful
                if set(other.config.accept) != set(pool.config.accept):
                    text = f"the pool {handle!r} has other networks in {file}; it can have but one list"
                    problems.append(_at(document, pool, "accept", text))
                if other.config.verification != pool.config.verification and not in_doubt:
                    text = f"the pool {handle!r} is verified in another way in {file}"
                    problems.append(_at(document, pool, "verify", text))
    for readable in zones_read:
        problems += _problems_at_cuts(readable, cuts_of(readable.zone.name, zones))
    return problems


def cuts_of(zone: str, zones: Collection[str]) -> frozenset[str]:
    """The zones below `zone`, without those that lie below one of these: where `zone` ends."""
    inner = {other for other in zones if names.is_below(other, zone)}
    return frozenset(other for other in inner if inner.isdisjoint(names.ancestors(other, zone)))


def _problems_at_cuts(readable: Readable, cuts: frozenset[str]) -> Iterator[ConfigurationError]:
    """The records of a zone at names that are another zone's: NS, DS and glue alone belong there.

    PowerDNS asks the other zone about these names, so nobody would see the rest, but in a transfer.
    """
    if not cuts:
        return
    zone = readable.zone

    def cut_of(name: str) -> str | None:
        return next(
            (ancestor for ancestor in (name, *names.ancestors(name, zone.name)) if ancestor in cuts), None
        )

    for name, records in zone.static.records.items():
        cut = cut_of(name)
        if cut is None:
            continue
        at_cut = zone.static.records.get(cut, ())
        servers = {record.content.lower() for record in at_cut if record.type == "NS"}
        allowed = {"NS", "DS"} if name == cut else set()
        if name in servers:
            allowed |= {"A", "AAAA"}
        wrong = [record for record in records if record.type not in allowed]
        for record in {record.type: record for record in reversed(wrong)}.values():
            text = (
                f"belongs into the zone {cut}, which is served here too: "
                "only its NS and DS records and the addresses of its name servers may stand here"
            )
            yield _in_file(zone, record, text)
    for site in zone.sites:
        for pool in site.pools:
            inner = next(filter(None, map(cut_of, (site.name, pool.owner, pool.targets))), None)
            has_ns = any(record.type == "NS" for record in zone.static.records.get(inner or "", ()))
            if inner is not None and not has_ns:  # else the delegation is told of: it hides these names
                text = f"the pool's names lie in the zone {inner}, which is served here too: put it there"
                yield _at(readable.document, pool, "name", text)


def _at(document: TomlDocument, pool: Pool, key: str, text: str) -> ConfigurationError:
    return document.error(("pool", pool.position, key), text)


def _name_problems(pool: Pool) -> Iterator[tuple[str, str]]:
    cells = [cell.name for cell in pool.config.cells or ()]
    target = pool.target(pool.config.longest_label)
    owners = [("cells", names.join(pool.config.service, cell)) for cell in cells]
    for key, name in (("name", pool.owner), *(owners or [("label", target)])):
        try:
            names.normal(name)
        except ValueError as error:
            yield key, f"gives the name {name}: {error}"
            return
    sizes = [fitting.srv_size(cell, 0, 0) for cell in cells] or [fitting.srv_size(target, 1, 1)]
    if fitting.how_many(pool.owner, [max(sizes)] * 2) < 2:
        yield (
            "name",
            f"too long: two SRV records at {pool.owner} do not fit into {fitting.LIMIT} bytes",
        )


def _cell_problems(readable: Readable, pool: Pool) -> Iterator[str]:
    """Names of cells in this zone that nothing delegates: nobody would find their servers."""
    zone = readable.zone
    for cell in dict.fromkeys(cell.name for cell in pool.config.cells or ()):
        above = (cell, *names.ancestors(cell, zone.name))
        is_delegated = any(
            record.type == "NS" for name in above for record in zone.static.records.get(name, ())
        )
        if names.is_below(cell, zone.name) and not is_delegated and all(map(readable.is_read, above)):
            yield f"{cell} is in this zone, and no NS record of {zone.static.file} delegates it to the cell"


def _svcb_problems(zone: Zone, pool: Pool) -> Iterator[str]:
    """Problems of the names of a pool's HTTPS or SVCB records."""
    svcb, owner = pool.config.svcb, pool.svcb_owner
    if svcb is None or owner is None:
        return
    try:
        names.normal(owner)
    except ValueError as error:
        yield f"gives the name {owner}: {error}"
        return
    alias = pool.svcb_alias
    size = fitting.svcb_size(
        pool.target(pool.config.longest_label), svcb.alpn, with_port=True, ipv4=1, ipv6=1
    )
    limit = fitting.LIMIT - (fitting.svcb_alias_size(owner) if alias is not None else 0)
    if fitting.how_many(owner, [size] * 2, limit) < 2:
        yield f"two {svcb.type} records at {owner} do not fit into {fitting.LIMIT} bytes"
    if alias is None:
        return
    if alias == owner:
        yield "has no use for apex_alias: the pool is at the apex itself"
    for record in zone.static.records.get(alias, ()):
        if record.type in (svcb.type, "CNAME"):
            yield f"the zone file has {record.type} records at {alias}, where the alias would stand"
            break


def _naptr_problem(site: Site) -> str:
    sizes = [
        max(fitting.naptr_size("s", pool.naptr_service, owner) for owner in _naptr_owners(pool))
        for pool in site.pools
        if pool.naptr_service
    ]
    if fitting.how_many(site.name, sizes) < len(sizes):
        return f"the {len(sizes)} NAPTR records at {site.name} do not fit into {fitting.LIMIT} bytes"
    return ""


def _naptr_owners(pool: Pool) -> list[str]:
    cells = pool.config.cells or ()
    return [names.join(pool.config.service, cell.name) for cell in cells] or [pool.owner]


def _label_problems(zone: Zone) -> Iterator[tuple[Pool, str]]:
    """Target names must be of one pool only: PE identifiers are unique within a pool."""
    taken: dict[str, str] = {}
    """The record or pool that is at a name, or somewhere below it."""

    def take(name: str, what: str) -> None:
        for ancestor in (name, *names.ancestors(name, zone.name)):
            taken.setdefault(ancestor, what)

    for site in zone.sites:
        take(site.name, f"the name of {site.pools[0].config.target_label!r}")
        for pool in site.pools:
            take(pool.owner, f"the SRV records of {pool.config.target_label!r}")
    for pool in (pool for site in zone.sites for pool in site.pools):
        if (what := taken.get(pool.targets)) is not None:
            yield pool, f"targets would be below {pool.targets}, where {what} is; give it another label"
        take(pool.targets, f"the targets of {pool.config.target_label!r}")


def _has(site: Site, name: str, types: Sequence[str]) -> bool:
    return any(record.type in types for record in site.static.get(name, ()))


def _static_problems(zone: Zone, site: Site, *, in_doubt: bool) -> Iterator[ConfigurationError]:
    """Fixed records where live ones belong. Other types may stand beside them.

    `in_doubt`: one of the site's pools has an error, and might be one with when_empty = "static".
    """
    fallback = in_doubt or any(pool.config.when_empty == "static" for pool in site.pools)
    for pool in site.pools:
        for name, records in zone.static.records.items():
            if names.is_below(name, pool.targets):
                yield _in_file(
                    zone, records[0], f"the names below {pool.targets} belong to the pool's members"
                )
    for name, records in site.static.items():
        for record in {record.type: record for record in reversed(records)}.values():
            if record not in zone.static.lines:
                continue  # an alias of a pool
            if record.type in _ALONE and name != zone.name:
                yield _in_file(zone, record, f"{record.type} cannot stand at the name of a pool")
            elif record.type in ("A", "AAAA") and name == site.name and not fallback:
                yield _in_file(zone, record, "a pool gives this name its addresses" + _IF_MEANT)
    for pool in site.pools:
        for record in site.static.get(pool.owner, ()):
            if record.type == "SRV" and pool.config.when_empty != "static" and not in_doubt:
                yield _in_file(zone, record, "a pool gives this name its SRV records" + _IF_MEANT)
                break
        for record in site.static.get(pool.svcb_owner or "", ()):
            is_given = pool.config.svcb is not None and record.type == pool.config.svcb.type
            if is_given and record in zone.static.lines and not fallback:
                yield _in_file(zone, record, f"a pool gives this name its {record.type} records" + _IF_MEANT)
                break
        for record in site.static.get(site.name, ()):
            if pool.naptr_service and _naptr_service(record) == pool.naptr_service.encode():
                yield _in_file(
                    zone, record, f"a pool gives this name its NAPTR record of {pool.naptr_service}"
                )


def _naptr_service(record: Record) -> bytes | None:
    """The service of a NAPTR record; None of another type."""
    if record.type != "NAPTR" or not isinstance(record.data, OtherData):
        return None
    return cast(dns.rdtypes.IN.NAPTR.NAPTR, record.data.parsed).service


_IF_MEANT = '; if these are for when the pool is empty, set when_empty = "static"'


def _delegation_problems(zone: Zone) -> Iterator[ConfigurationError]:
    """Nothing is served below a delegation or a DNAME; told once for each of them."""
    hidden: dict[Record, str] = {}
    for name in (name for site in zone.sites for name in live_names(site)):
        for ancestor in [*names.ancestors(name, zone.name), zone.name]:
            for record in zone.static.records.get(ancestor, ()):
                if ancestor != name and (
                    record.type == "DNAME" or (record.type == "NS" and ancestor != zone.name)
                ):
                    hidden.setdefault(record, name)
    for record, name in hidden.items():
        yield _in_file(zone, record, f"hides {name}, which a pool needs")


def _name_server_problems(readable: Readable, doubtful: set[str]) -> Iterator[ConfigurationError]:
    """A name server inside the zone needs an address there, or nobody finds it."""
    zone = readable.zone
    sites = {site.name for site in zone.sites} | doubtful
    for record in zone.static.records.get(zone.name, ()):
        server = record.content.lower()
        if record.type != "NS" or not names.is_at_or_below(server, zone.name):
            continue
        if (
            not any(r.type in ("A", "AAAA") for r in zone.static.records.get(server, ()))
            and server not in sites
            and readable.is_read(server)
        ):
            yield _in_file(zone, record, f"the name server {server} has no address in this zone")


def _in_file(zone: Zone, record: Record, text: str) -> ConfigurationError:
    line = zone.static.lines[record]
    return ConfigurationError(zone.static.file, line, f"{record.name} {record.type}", text)
