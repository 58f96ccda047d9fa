"""A zone in words: its names, its pools, its files, and what its parent needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from daemon_kit.config_file import ConfigurationErrors, TomlDocument, read_text

from rspdns import names
from rspdns.zones.adding import DELEGATION_TTL_S
from rspdns.zones.zone import Pool, Zone


def delegation_of(zone: Zone) -> str:
    """The records the parent zone needs, glue included, as the zone file tells them."""
    servers = [record.content for record in zone.static.records.get(zone.name, ()) if record.type == "NS"]
    lines = [f"{zone.name}. {DELEGATION_TTL_S} IN NS {server}." for server in servers]
    for server in dict.fromkeys(servers):
        if names.is_below(server.lower(), zone.name):
            lines += [
                f"{server}. {DELEGATION_TTL_S} IN {record.type} {record.content}"
                for record in zone.static.records.get(server.lower(), ())
                if record.type in ("A", "AAAA")
            ]
    return "\n".join(lines)


def described(zone: Zone, file: Path) -> str:
    """Everything about one zone, for people; `file` is its TOML file."""
    fixed = sum(len(records) for records in zone.static.records.values())
    times = f"live records {zone.config.ttl} s, nothing there {zone.config.negative_ttl_s} s"
    lines = [
        f"zone {zone.name}",
        f"  files   {file}, {zone.static.file}",
        f"  TTL     {times}",
        f"  fixed   {fixed} records",
    ]
    for site in zone.sites:
        for pool in site.pools:
            lines += ["", *_pool(pool, site.name)]
    return "\n".join(lines)


def _pool(pool: Pool, name: str) -> Iterator[str]:
    yield f"  pool {', '.join(pool.config.shards)}"
    yield f"    SRV          {pool.owner}"
    if not pool.config.cells:
        yield f"    A, AAAA      {name}"
    if pool.naptr_service:
        yield f"    NAPTR        {name} ({pool.naptr_service})"
    if pool.config.svcb is not None and pool.svcb_owner is not None:
        alias = f", alias {pool.svcb_alias}" if pool.svcb_alias is not None else ""
        yield f"    {pool.config.svcb.type:<12} {pool.svcb_owner} ({','.join(pool.config.svcb.alpn)}){alias}"
    for cell in pool.config.cells or ():
        yield f"    cell         {cell.name} (gateways in {cell.gateways})"
    if not pool.config.cells:
        yield f"    targets      {pool.target('<PE identifier>')}"
    if pool.near is not None:
        yield f"    near         {len(pool.near)} networks"
    if pool.config.affinity is not None:
        yield "    affinity     each asker has a server of its own"
    yield f"    accept       {', '.join(map(str, pool.config.accept))}"
    yield f"    when empty   {pool.config.when_empty}"


def file_of(name: str, directory: Path) -> Path | None:
    """The TOML file of the zone `name`, also when it has errors elsewhere."""
    for file in sorted(directory.glob("*.toml")):
        try:
            zone = TomlDocument(str(file), read_text(file)).data.get("zone")
        except ConfigurationErrors:
            continue
        if isinstance(zone, str) and zone.lower().rstrip(".") == name.lower().rstrip("."):
            return file
    return None


def files_to_remove(file: Path) -> list[Path]:
    """The files of the zone in `file` that no other zone uses: it, and its master file if it lies beside."""
    files = [file]
    static = _static(file)
    others = {_static(other) for other in file.parent.glob("*.toml") if other != file}
    if (
        static is not None
        and static.is_file()
        and static.parent == file.parent.resolve()
        and static not in others
    ):
        files.append(file.parent / static.name)
    return files


def _static(file: Path) -> Path | None:
    try:
        static = TomlDocument(str(file), read_text(file)).data.get("static")
    except ConfigurationErrors:
        return None
    return (file.parent / static).resolve() if isinstance(static, str) and static else None
