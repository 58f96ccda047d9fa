"""The table by which PowerDNS denies names itself, without asking the backend.

PowerDNS asks a remote backend about a name that does not exist twice for each of its labels, and waits for
each reply. For most names that is needless: which names a zone has is known from its configuration, but for
the members of its pools, which are all directly below the pool's target name. So the backend writes these
names into a file beside its socket. A script of the installation (`lua-prequery-script`, see `pdns_config`)
has PowerDNS say "no such name" wherever the table proves it. All other questions take the usual way.

Left out are signed zones (a denial needs proofs), zones of more names than `MAX_NAMES`, and whatever is below
a wildcard, a delegation or a DNAME.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from daemon_kit.logs import get_logger

from rspdns import names
from rspdns.zones.zone import Zone, live_names

TABLE_SUFFIX = ".names"
"""Appended to the path of the connector's socket."""
MAX_NAMES = 10_000
"""The most names of all zones together. Each thread of PowerDNS has a copy: about 2 MB for these."""
MAX_LINES, MAX_BYTES = 20_000, 4 * 1024 * 1024
"""The longest table; the script ignores a longer one."""
NOTHING, MEMBERS, UNKNOWN = "=", "+", "?"
"""The kinds of names that may be below a name beside the names of the table."""
_PLAIN = re.compile(r"[a-z0-9_.*/-]+")


def table_path(socket: Path) -> Path:
    """Return where the table is."""
    return socket.with_name(socket.name + TABLE_SUFFIX)


def write(connector: str, zones: Sequence[Zone], signed: Collection[str], serial: int) -> None:
    """Write the table of these zones beside the socket of a unix connector. A failure is logged.

    PowerDNS looks once a second whether it changed. `signed` are the zones that are signed, `serial` is that
    of the SOAs in the table's denials. Takes a tenth of a second for MAX_NAMES names.
    """
    kind, _, socket = connector.partition(":")
    if kind == "unix":
        body = table(zones, signed, serial)
        _write(table_path(Path(socket)), f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}")


def table(zones: Sequence[Zone], signed: Collection[str], serial: int) -> str:
    """Return the lines of the table: each zone with its SOA, then its names with what may be below them.

    Empty where they would be more than the script takes.
    """
    apexes = {zone.name for zone in zones}
    lines: list[str] = []
    listed: set[str] = set()
    for zone in sorted(zones, key=lambda zone: zone.name):
        if zone.name in signed or len(listed) + len(zone.fixed) > MAX_NAMES:
            continue  # not worked out first: of 100,000 names that takes a second
        kinds = _kinds(zone, apexes - {zone.name})
        if len(listed) + len(kinds) > MAX_NAMES or not all(map(_PLAIN.fullmatch, kinds)):
            continue
        soa = zone.static.soa.record(zone.name, serial, zone.config.negative_ttl_s)
        lines.append(f"Z {zone.name} {min(soa.ttl, zone.static.soa.data.minimum_s)} {soa.content}")
        lines += (f"{kind} {name}" for name, kind in kinds.items())
        listed.add(zone.name)
        listed.update(kinds)
    # The other zones after all: what lies below their names is not for the zones around them to deny.
    denied = apexes & listed
    lines += (f"{UNKNOWN} {name}" for name in sorted(apexes - denied) if _is_below_any(name, denied))
    text = "".join(f"{line}\n" for line in lines)
    return text if len(lines) <= MAX_LINES and len(text) <= MAX_BYTES else ""


def _kinds(zone: Zone, other_apexes: Collection[str]) -> dict[str, str]:
    """The names of a zone that its pools do not change, and what may be below each."""
    targets = {pool.targets for site in zone.sites for pool in site.pools}
    live = (name for site in zone.sites for name in live_names(site))
    kinds = dict.fromkeys((*zone.fixed, *live), NOTHING) | dict.fromkeys(targets, MEMBERS)
    open_names = set(_open_names(zone))
    inner = {apex for apex in other_apexes if names.is_below(apex, zone.name)}
    return {
        name: UNKNOWN if name in open_names or _is_at_or_below_any(name, open_names, zone.name) else kind
        for name, kind in kinds.items()
        if not (inner and (name in inner or _is_at_or_below_any(name, inner, zone.name)))
    }


def _open_names(zone: Zone) -> Iterator[str]:
    """The names below which anything may be: parents of wildcards, delegations, DNAMEs."""
    for owner, records in zone.static.records.items():
        if owner.startswith("*."):
            yield owner[2:]
        if any(record.type == "DNAME" or (record.type == "NS" and owner != zone.name) for record in records):
            yield owner


def _is_below_any(name: str, zones: Collection[str]) -> bool:
    while name := name.partition(".")[2]:
        if name in zones:
            return True
    return False


def _is_at_or_below_any(name: str, others: Collection[str], zone: str) -> bool:
    return bool(others) and any(ancestor in others for ancestor in names.ancestors(name, zone))


def _write(file: Path, text: str) -> None:
    """Write a file that PowerDNS, another user, may read; a reader has the old one or the new one, whole."""
    made = file.with_name(f".{file.name}.{threading.get_ident()}")
    try:
        made.write_text(text)
        made.chmod(0o644)
        made.replace(file)
    except OSError as problem:
        get_logger("connector").error("names_not_written", file=str(file), problem=problem.strerror)
