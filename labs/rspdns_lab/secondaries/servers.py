"""The name servers of `rspdns-lab secondaries`: PowerDNS's secondaries, with the lines of the how-to page."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rspdns_lab.chain.plan import ZONE
from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program

CLIENT: Final = "10.53.0.61"
PACKAGES: Final = {"nsd": "nsd", "knotd": "knot", "named": "bind9"}


def bind_conf(address: str, primary: str, folder: Path) -> str:
    """BIND as a secondary."""
    return f"""options {{
    directory "{folder}";
    listen-on {{ {address}; }};
    listen-on-v6 {{ none; }};
    recursion no;
    notify no;
    serial-query-rate 1000;
    max-records-per-type 0;
    pid-file none;
    session-keyfile "{folder}/session";
    dnssec-validation no;
    allow-transfer {{ {CLIENT}; }};
}};
controls {{ }};
zone "{ZONE}" {{
    type secondary;
    primaries {{ {primary}; }};
    allow-notify {{ {primary}; }};
    file "{ZONE}";
}};
"""


def nsd_conf(address: str, primary: str, folder: Path) -> str:
    """NSD as a secondary; one server process."""
    return f"""server:
    ip-address: {address}
    xfrd-reload-timeout: 0
    server-count: 1
    username: ""
    database: ""
    pidfile: ""
    zonesdir: "{folder}"
    xfrdir: "{folder}"
    xfrdfile: "{folder}/xfrd.state"
remote-control:
    control-enable: no
zone:
    name: "{ZONE}"
    zonefile: "{ZONE}"
    allow-notify: {primary} NOKEY
    request-xfr: {primary} NOKEY
    provide-xfr: {CLIENT} NOKEY
"""


def knot_server(address: str, folder: Path) -> str:
    """The part about the process, with one worker of each kind."""
    return f"""server:
    listen: {address}@53
    rundir: {folder}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
database:
    storage: {folder}
"""


def knot_conf(address: str, primary: str, folder: Path) -> str:
    """Knot as a secondary."""
    return f"""{knot_server(address, folder)}    journal-db-max-size: 64M
remote:
  - id: rspdns
    address: {primary}@53
acl:
  - id: notify
    address: {primary}
    action: notify
  - id: client
    address: {CLIENT}
    action: transfer
zone:
  - domain: {ZONE}
    storage: {folder}
    master: rspdns
    acl: [notify, client]
    zonefile-sync: -1
    journal-content: all
"""


@dataclass(frozen=True)
class SecondaryKind:
    """A program that is a secondary."""

    title: str
    configured: Callable[[str, str, Path], str]
    command: Callable[[Path], Sequence[str]]
    version: Sequence[str]

    def tells_version(self) -> str:
        """Its version, as it tells it."""
        done = subprocess.run(self.version, capture_output=True, text=True, check=False)
        found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr)
        return found[0] if found else "?"


KINDS: Final[Mapping[str, SecondaryKind]] = {
    "knot": SecondaryKind("Knot", knot_conf, lambda file: ["knotd", "-c", str(file)], ("knotd", "-V")),
    "nsd": SecondaryKind("NSD", nsd_conf, lambda file: ["nsd", "-d", "-c", str(file)], ("nsd", "-v")),
    "bind": SecondaryKind(
        "BIND", bind_conf, lambda file: ["named", "-g", "-n", "1", "-c", str(file)], ("named", "-v")
    ),
}


@dataclass(frozen=True)
class SecondaryServer:
    """A name server that runs, or is to run. `path`: "direct", told by the backend, "distributor", or
    "published" for one that is sent DNS UPDATE."""

    kind: SecondaryKind
    path: str
    host: Host
    program: Program

    @property
    def title(self) -> str:
        """The title of its rows."""
        return f"{self.kind.title}, {self.path}"


def make(kind: SecondaryKind, path: str, host: Host, primary: str, folder: Path) -> SecondaryServer:
    """Write the files of a name server into `folder`."""
    file = folder / "conf"
    file.write_text(kind.configured(host.address, primary, folder))
    return SecondaryServer(kind, path, host, Program(host.name, host, kind.command(file), folder / "log"))
