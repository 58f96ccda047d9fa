"""The files of an import: rspdns.toml, a zone each, an agent.toml for each server's host, and a report.

They are made in a directory beside the wanted one, read by what reads them later, and moved there when all
are right: all or nothing, and never over anything that is there.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from daemon_kit.commands import counted
from daemon_kit.config_file import ConfigurationErrors

from rspdns import names
from rspdns.configuration import load_configuration
from rspdns.importing.model import Address, Import, ImportedPool, ImportedServer, ImportProblem

REPORT: Final = "REPORT.txt"
_MOST_HANDLE: Final = 32
_TTL_S: Final = 60


@dataclass(frozen=True)
class Written:
    """The number of files and pools that were written."""

    zones: int
    pools: int
    agents: int


def write(imports: Sequence[Import], directory: Path, registrars: Sequence[str]) -> Written:
    """Write all files into the new `directory`. Raises ImportProblem, and OSError."""
    if directory.exists() or directory.is_symlink():
        raise ImportProblem(f"{directory}: is there already; nothing is ever written over")
    if not any(imported.pools for imported in imports):
        lost = "\n".join(str(note) for imported in imports for note in imported.notes if note.is_lost)
        raise ImportProblem(f"nothing can be carried over, so nothing was written:\n{lost}")
    files = _files(imports, registrars)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as made:
        ready = Path(made) / "ready"
        for name, text in files.items():
            (ready / name).parent.mkdir(parents=True, exist_ok=True)
            (ready / name).write_text(text)
        try:
            load_configuration(ready / "rspdns.toml")
        except ConfigurationErrors as errors:
            problems = str(errors).replace(f"{ready}/", "")
            raise ImportProblem(
                f"what would be written is not right, so nothing was written:\n{problems}"
            ) from None
        ready.rename(directory)
    agents = len([name for name in files if name.endswith("agent.toml")])
    zones = [imported for imported in imports if imported.pools]
    return Written(len(zones), sum(len(zone.pools) for zone in zones), agents)


def _files(imports: Sequence[Import], registrars: Sequence[str]) -> dict[str, str]:
    files = {"rspdns.toml": _backend(registrars), REPORT: _report(imports)}
    hosts: dict[Address, list[tuple[str, ImportedPool, ImportedServer]]] = {}
    taken: set[str] = set()
    for imported in imports:
        if not imported.pools:
            continue
        handles = [_handle(imported.zone, pool, taken) for pool in imported.pools]
        files[f"zones.d/{imported.zone}.toml"] = _zone(imported, handles)
        files[f"zones.d/{imported.zone}.zone"] = _master_file(imported)
        for handle, pool in zip(handles, imported.pools, strict=True):
            for server in pool.servers:
                hosts.setdefault(server.address, []).append((handle, pool, server))
    for address, servers in hosts.items():
        files[f"agents/{str(address).replace(':', '-')}/agent.toml"] = _agent(address, servers, registrars)
    return files


def _handle(zone: str, pool: ImportedPool, taken: set[str]) -> str:
    """A handle of the pool's name and service, cut with a checksum where it is too long, or taken."""
    service = pool.service.partition(".")[0].strip("_")
    name = "apex" if pool.name == "@" else pool.name.replace(".", "-").replace("_", "")
    handle = f"{name}-{service}".lower().strip("-")
    if len(handle) > _MOST_HANDLE or handle in taken or not names.is_label(handle):
        checksum = zlib.crc32(f"{pool.name}.{zone}".encode())
        handle = f"{name[:12].strip('-') or 'pool'}-{checksum:08x}-{service[:8].rstrip('-')}".lower()
    taken.add(handle)
    return handle


def _backend(registrars: Sequence[str]) -> str:
    return "\n".join(
        [
            "# Made by `rspdns import`. Paths and further keys: rspdns.toml in the reference.",
            f"registrars = {_value(list(registrars))}",
            "",
            "[pdns]",
            'connector = "unix:/run/rspdns/remote.sock"',
            'control = ["/run/pdns/pdns.controlsocket"]',
            "",
        ]
    )


def _zone(made: Import, handles: Sequence[str]) -> str:
    lines = [
        "# Made by `rspdns import`; REPORT.txt says what is different from before.",
        f"zone = {_value(made.zone)}",
        f"static = {_value(f'{made.zone}.zone')}",
        "ttl = 1 # s, of live records",
    ]
    for handle, pool in zip(handles, made.pools, strict=True):
        accept = sorted({f"{server.address}/{server.address.max_prefixlen}" for server in pool.servers})
        lines += [
            "",
            f"[[pool]] # {pool.found_at}",
            f"handle = {_value(handle)}",
            f"service = {_value(pool.service)}",
            f"name = {_value(pool.name)}",
            f"accept = {_value(accept)}",
            f"max_addresses = {pool.max_addresses}",
            f"when_empty = {_value('static' if pool.fallback else 'nodata')}",
            "[pool.expect]",
            *(f"{_value(_endpoint(server))} = {_value(name)}" for name, server in _named(pool.servers)),
        ]
    return "\n".join(lines) + "\n"


def _named(servers: Iterable[ImportedServer]) -> list[tuple[str, ImportedServer]]:
    """Each server with a name that no other of the pool has."""
    seen: dict[str, int] = {}
    named = []
    for server in servers:
        seen[server.name] = seen.get(server.name, 0) + 1
        name = (
            server.name
            if seen[server.name] == 1
            else f"{server.name}-v{server.address.version}-{seen[server.name]}"
        )
        named.append((name, server))
    return named


def _endpoint(server: ImportedServer) -> str:
    address = f"[{server.address}]" if server.address.version == 6 else str(server.address)
    return f"{address}:{server.port}"


def _master_file(made: Import) -> str:
    """The fixed records, and those that are answered while nobody lives."""
    lines = [f"$ORIGIN {made.zone}.", "; Made by `rspdns import`.", *made.fixed]
    for pool in made.pools:
        if pool.fallback:
            lines.append(f"; while no server of {pool.name} lives")
            lines += [
                f"{pool.name} {_TTL_S} IN {'A' if address.version == 4 else 'AAAA'} {address}"
                for address in pool.fallback
            ]
            owner = pool.service if pool.name == "@" else f"{pool.service}.{pool.name}"
            ports = dict.fromkeys(server.port for server in pool.servers)
            lines += [f"{owner} {_TTL_S} IN SRV 0 0 {port} {pool.name}" for port in ports]
    return "\n".join(lines) + "\n"


def _agent(
    address: Address, servers: Sequence[tuple[str, ImportedPool, ImportedServer]], registrars: Sequence[str]
) -> str:
    lines = [
        f"# Made by `rspdns import` for the host {address}. It goes to /etc/ppe-agent/agent.toml there.",
        f"registrars = {_value(list(registrars))}",
    ]
    for handle, pool, server in servers:
        lines += [
            "",
            f"[[as]] # {pool.found_at}",
            f"name = {_value(handle)}",
            f"handle = {_value(handle)}",
            'transport = "tcp"',
            f"address = {_value(str(address))}",
            f"port = {server.port}",
            f"policy = {_value(pool.policy)}",
            *([f"weight = {server.weight}"] if pool.policy == "weighted-random" else []),
            *([f"priority = {server.priority or 1}"] if pool.policy == "priority" else []),
        ]
        for check in server.checks:
            lines += ["[[as.check]]", *_keys(check)]
    return "\n".join(lines) + "\n"


def _keys(table: Mapping[str, object]) -> Iterable[str]:
    return (f"{key} = {_value(value)}" for key, value in table.items())


def _value(value: object) -> str:
    """Return a text, number, truth or list as TOML; JSON's are TOML's too."""
    return json.dumps(value, ensure_ascii=False)


def _report(imports: Sequence[Import]) -> str:
    """The parts that were carried over, those that were not and why, and the differences; each with its
    file and line."""
    lines = []
    for imported in imports:
        pools, fixed = counted(len(imported.pools), "pool"), counted(len(imported.fixed), "fixed record")
        lines.append(f"Zone {imported.zone}: {pools}, {fixed}")
        lines += [
            f"  {pool.name} {pool.service} ({pool.found_at}): "
            f"{counted(len(pool.servers), 'server')}, {pool.policy}"
            for pool in imported.pools
        ]
        for title, is_lost in (("Not carried over", True), ("Different", False)):
            notes = [note for note in imported.notes if note.is_lost is is_lost]
            if notes:
                lines += [f"  {title}:", *(f"    {note}" for note in dict.fromkeys(map(str, notes)))]
    lines += [
        "",
        "Different everywhere:",
        "  The checks have the times of rspdns (docs: Health checks), not those of the source.",
        "  The TTL of live records is 1 s.",
        "  Each name has SRV records and, for SIP, NAPTR records beside its addresses.",
    ]
    return "\n".join(lines) + "\n"
