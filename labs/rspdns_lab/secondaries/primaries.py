"""The name servers of `rspdns-lab secondaries` that are sent DNS UPDATE, with the lines of its how-to."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rspdns_lab.chain.plan import NAME, NAME_SERVERS, ZONE
from rspdns_lab.chain.texts import static_zone
from rspdns_lab.errors import LabError
from rspdns_lab.secondaries.servers import CLIENT, KINDS, SecondaryKind, knot_server

ADDRESSES: Final = {"bind": "10.53.0.75", "knot": "10.53.0.76", "pdns": "10.53.0.77"}
SECRET: Final = "3WeVb3L0mI3bTkMNuqzCcqv4cwEn4fnXZcqRkJq4aGk="  # noqa: S105 - of this lab alone
_KEY: Final = f'key "rspdns-key" {{\n\talgorithm hmac-sha256;\n\tsecret "{SECRET}";\n}};\n'
_SCHEMA: Final = Path("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql")
_OWNER: Final = NAME.removesuffix(f".{ZONE}")


def write_key(folder: Path) -> Path:
    """Write the key that they all know; return its file."""
    file = folder / "tsig.key"
    file.touch(0o600)
    file.write_text(_KEY)
    return file


def _zone_file(folder: Path) -> Path:
    file = folder / "zone"
    file.write_text(static_zone([NAME_SERVERS["ns1"]]))
    return file


def _bind(address: str, _: str, folder: Path) -> str:
    return f"""{_KEY}options {{
    directory "{folder}";
    listen-on {{ {address}; }};
    listen-on-v6 {{ none; }};
    recursion no;
    notify no;
    pid-file none;
    session-keyfile "{folder}/session";
    dnssec-validation no;
    allow-transfer {{ {CLIENT}; }};
}};
controls {{ }};
zone "{ZONE}" {{
    type primary;
    file "{_zone_file(folder)}";
    max-records-per-type 0;
    update-policy {{
        grant rspdns-key subdomain {NAME}. SRV A AAAA NAPTR HTTPS SVCB;
    }};
}};
"""


def _knot(address: str, _: str, folder: Path) -> str:
    _zone_file(folder)
    return f"""{knot_server(address, folder)}key:
  - id: rspdns-key
    algorithm: hmac-sha256
    secret: {SECRET}
acl:
  - id: rspdns
    key: rspdns-key
    action: update
    update-owner: name
    update-owner-match: sub-or-equal
    update-owner-name: [{_OWNER}]
    update-type: [SRV, A, AAAA, NAPTR, HTTPS, SVCB]
  - id: client
    address: {CLIENT}
    action: transfer
zone:
  - domain: {ZONE}
    storage: {folder}
    file: zone
    acl: [rspdns, client]
"""


def _pdns(address: str, _: str, folder: Path) -> str:
    """The configuration; `pdnsutil` makes the zone by it."""
    if not _SCHEMA.exists():
        raise LabError("pdns-backend-sqlite3 is missing: apt-get install pdns-backend-sqlite3")
    with contextlib.closing(sqlite3.connect(folder / "zones.sqlite3")) as database:
        database.executescript(_SCHEMA.read_text())
    text = f"""launch=gsqlite3
gsqlite3-database={folder}/zones.sqlite3
dnsupdate=yes
allow-dnsupdate-from=
allow-axfr-ips={CLIENT}
local-address={address}
socket-dir={folder}
"""
    (folder / "pdns.conf").write_text(text)
    for words in (
        ("load-zone", ZONE, str(_zone_file(folder))),
        ("import-tsig-key", "rspdns-key", "hmac-sha256", SECRET),
        ("set-meta", ZONE, "TSIG-ALLOW-DNSUPDATE", "rspdns-key"),
        ("set-meta", ZONE, "ALLOW-DNSUPDATE-FROM", NAME_SERVERS["ns1"]),
        ("set-meta", ZONE, "SOA-EDIT-DNSUPDATE", "INCREASE"),
    ):
        done = subprocess.run(
            ["pdnsutil", f"--config-dir={folder}", *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise LabError(f"pdnsutil {words[0]}: {done.stderr.strip()}")
    return text


PRIMARIES: Final[Mapping[str, SecondaryKind]] = {
    "bind": SecondaryKind("BIND", _bind, KINDS["bind"].command, KINDS["bind"].version),
    "knot": SecondaryKind("Knot", _knot, KINDS["knot"].command, KINDS["knot"].version),
    "pdns": SecondaryKind(
        "PowerDNS",
        _pdns,
        lambda file: ["pdns_server", f"--config-dir={file.parent}"],
        ("pdns_server", "--version"),
    ),
}


def publish_toml(key: Path) -> str:
    """The tables of the backend."""
    return "".join(
        f'\n[[publish]]\nname = "{kind}"\nserver = "{address}:53"\nzone = "{ZONE}"\nkey = "{key}"\n'
        for kind, address in ADDRESSES.items()
    )
