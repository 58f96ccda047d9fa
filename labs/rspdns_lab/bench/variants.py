"""The name servers that `rspdns-lab bench` asks: all have the same names, rspdns has them alive."""

import contextlib
import functools
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import dns.rdatatype
import dns.zone

from rspdns_lab.bench import zone
from rspdns_lab.bench.programs import is_signed, start_live, start_name_server, start_pdns
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.chain.side_by_side.approaches import run_command
from rspdns_lab.net.network import Host, call_in
from rspdns_lab.net.processes import Program

Start = Callable[[Host, Path, int], list[Program]]
"""Starts a name server on a host, with its files in a folder, at a port; returns when it answers."""

# As the Debian package has it (schema.sqlite3.sql), less what only its API and its slaves use.
_SCHEMA: Final = """
CREATE TABLE domains (id INTEGER PRIMARY KEY, name VARCHAR(255) NOT NULL COLLATE NOCASE,
  master VARCHAR(128) DEFAULT NULL, last_check INTEGER DEFAULT NULL, type VARCHAR(8) NOT NULL,
  notified_serial INTEGER DEFAULT NULL, account VARCHAR(40) DEFAULT NULL, options VARCHAR(65535) DEFAULT NULL,
  catalog VARCHAR(255) DEFAULT NULL);
CREATE UNIQUE INDEX name_index ON domains(name);
CREATE TABLE records (id INTEGER PRIMARY KEY, domain_id INTEGER, name VARCHAR(255), type VARCHAR(10),
  content VARCHAR(65535), ttl INTEGER, prio INTEGER, disabled BOOLEAN DEFAULT 0, ordername VARCHAR(255),
  auth BOOL DEFAULT 1);
CREATE INDEX records_lookup_idx ON records(name, type);
CREATE INDEX records_lookup_id_idx ON records(domain_id, name, type);
CREATE INDEX records_order_idx ON records(domain_id, ordername);
CREATE TABLE domainmetadata (id INTEGER PRIMARY KEY, domain_id INT NOT NULL, kind VARCHAR(32), content TEXT);
CREATE INDEX domainmetaidindex ON domainmetadata(domain_id);
CREATE TABLE cryptokeys (id INTEGER PRIMARY KEY, domain_id INT NOT NULL, flags INT NOT NULL, active BOOL,
  published BOOL DEFAULT 1, content TEXT);
CREATE INDEX domainidindex ON cryptokeys(domain_id);
CREATE TABLE tsigkeys (id INTEGER PRIMARY KEY, name VARCHAR(255), algorithm VARCHAR(50), secret VARCHAR(255));
"""


@dataclass(frozen=True)
class Variant:
    """One name server. `signed`: it is asked with the DO bit; its answers carry signatures."""

    key: str
    title: str
    start: Start
    package: str
    """The Debian packages that it needs besides PowerDNS."""
    signed: bool = False
    compared_with: str = "static_qps"
    """The variant that serves the same names statically."""
    program: str = "pdns_server"
    fast: bool = False
    """Its answers come from the kernel."""


def _bind(host: Host, folder: Path, port: int) -> list[Program]:
    folder.mkdir()
    zone.write_pdns(folder, host.address, port, zone.write_bind(folder, zone.static_zone()))
    return [start_pdns(host, folder, port)]


def _lua(mode: Literal["yes", "shared"]) -> Start:
    def start(host: Host, folder: Path, port: int) -> list[Program]:
        folder.mkdir()
        settings = [*zone.write_bind(folder, zone.lua_zone()), f"enable-lua-records={mode}"]
        zone.write_pdns(folder, host.address, port, settings)
        return [start_pdns(host, folder, port)]

    return start


def _sqlite(host: Host, folder: Path, port: int) -> list[Program]:
    folder.mkdir()
    _write_database(folder / "zones.sqlite3")
    settings = ["launch=gsqlite3", f"gsqlite3-database={folder}/zones.sqlite3"]
    zone.write_pdns(folder, host.address, port, settings)
    return [start_pdns(host, folder, port)]


def _signed_sqlite(host: Host, folder: Path, port: int) -> list[Program]:
    folder.mkdir()
    _write_database(folder / "zones.sqlite3")
    settings = ["launch=gsqlite3", f"gsqlite3-database={folder}/zones.sqlite3", "gsqlite3-dnssec=yes"]
    zone.write_pdns(folder, host.address, port, [*settings, "default-ksk-algorithm=ecdsa256"])
    _sign(host, folder)
    return [start_pdns(host, folder, port)]


def _gdnsd(host: Host, folder: Path, port: int) -> list[Program]:
    for part in ("", "zones", "run", "state"):
        (folder / part).mkdir()
    (folder / "config").write_text(
        f"options => {{\n  listen => {host.address}\n  dns_port => {port}\n  udp_threads => 2\n"
        f"  run_dir => {folder}/run\n  state_dir => {folder}/state\n  min_ttl => 1\n}}\n"
    )
    (folder / "zones" / zone.ZONE).write_text(zone.static_zone())
    return [start_name_server(host, folder, port, ["gdnsd", "-c", str(folder), "start"])]


def _knot(host: Host, folder: Path, port: int) -> list[Program]:
    folder.mkdir()
    (folder / "zone").write_text(zone.static_zone())
    (folder / "knot.conf").write_text(
        f"server:\n  rundir: {folder}\n  listen: {host.address}@{port}\n  udp-workers: 2\n"
        f"database:\n  storage: {folder}\nlog:\n  - target: stderr\n    any: error\n"
        f"zone:\n  - domain: {zone.ZONE}\n    file: {folder}/zone\n"
    )
    return [start_name_server(host, folder, port, ["knotd", "-c", str(folder / "knot.conf")])]


def _live(changes_per_s: float = 0, *, cached: bool = True, by_asker: str = "") -> Start:
    def start(host: Host, folder: Path, port: int) -> list[Program]:
        return start_live(host, folder, port, changes_per_s, cached=cached, by_asker=by_asker)

    return start


def _fast(changes_per_s: float = 0, limit: str = zone.UNREACHED_LIMIT, by_asker: str = "") -> Start:
    def start(host: Host, folder: Path, port: int) -> list[Program]:
        return start_live(host, folder, port, changes_per_s, fast=True, limit=limit, by_asker=by_asker)

    return start


def _signed_live(changes_per_s: float) -> Start:
    def start(host: Host, folder: Path, port: int) -> list[Program]:
        programs = start_live(host, folder, port, changes_per_s, signed=True)
        _sign(host, folder)
        wait_until(functools.partial(is_signed, host, port), "signatures", 60, *programs)
        return programs

    return start


VARIANTS: Final = (
    Variant("static_qps", "PowerDNS, zone file (bind backend)", _bind, "pdns-backend-bind"),
    Variant("sqlite_qps", "PowerDNS, gsqlite3", _sqlite, "pdns-backend-sqlite3"),
    Variant("lua_qps", "PowerDNS, LUA records (ifportup)", _lua("yes"), "pdns-backend-bind"),
    Variant("lua_shared_qps", "the same, shared Lua state", _lua("shared"), "pdns-backend-bind"),
    Variant("gdnsd_qps", "gdnsd, zone file", _gdnsd, "gdnsd", program="gdnsd"),
    Variant("knot_qps", "Knot DNS, zone file", _knot, "knot", program="knotd"),
    Variant("live_qps", "rspdns, no change", _live(), "pdns-backend-remote"),
    Variant("live_qps_1_change", "rspdns, 1 membership change a second", _live(1), "pdns-backend-remote"),
    Variant("live_qps_10_changes", "rspdns, 10 a second", _live(10), "pdns-backend-remote"),
    Variant("live_qps_100_changes", "rspdns, 100 a second", _live(100), "pdns-backend-remote"),
    Variant("fastpath_qps", "rspdns, answers from the kernel", _fast(), "pdns-backend-remote", fast=True),
    Variant(
        "fastpath_qps_no_limit",
        "rspdns, from the kernel, no limit of a source prefix",
        _fast(limit=zone.NO_LIMIT),
        "pdns-backend-remote",
        fast=True,
    ),
    Variant(
        "fastpath_qps_100_changes",
        "rspdns, from the kernel, 100 changes a second",
        _fast(100),
        "pdns-backend-remote",
        fast=True,
    ),
    Variant("near_qps", "rspdns, names by nearness", _live(by_asker=zone.NEAR), "pdns-backend-remote"),
    Variant(
        "near_fastpath_qps",
        "rspdns, names by nearness, from the kernel",
        _fast(by_asker=zone.NEAR),
        "pdns-backend-remote",
        fast=True,
    ),
    Variant("affinity_qps", "rspdns, affinity", _live(by_asker=zone.AFFINITY), "pdns-backend-remote"),
    Variant("uncached_qps", "rspdns, every PowerDNS cache off", _live(cached=False), "pdns-backend-remote"),
    Variant(
        "static_signed_qps", "PowerDNS, gsqlite3, DNSSEC", _signed_sqlite, "pdns-backend-sqlite3", signed=True
    ),
    Variant(
        "signed_qps",
        "rspdns, DNSSEC",
        _signed_live(0),
        "pdns-backend-remote",
        signed=True,
        compared_with="static_signed_qps",
    ),
    Variant(
        "signed_qps_100_changes",
        "rspdns, DNSSEC, 100 changes a second",
        _signed_live(100),
        "pdns-backend-remote",
        signed=True,
        compared_with="static_signed_qps",
    ),
)
BY_KEY: Final = {variant.key: variant for variant in VARIANTS}


@contextlib.contextmanager
def members_that_answer(host: Host) -> Iterator[None]:
    """Have every member's port accept connections on `host`, for whoever checks that before he answers."""
    run_command(host, ["ip", "route", "add", "local", zone.NETWORK, "dev", "lo"])
    listener: socket.socket = call_in(host.path, lambda: socket.create_server(("", zone.PORT), backlog=512))
    thread = threading.Thread(target=_accept, args=(listener,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _accept(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


def _write_database(file: Path) -> None:
    database = sqlite3.connect(file)
    with contextlib.closing(database), database:
        database.executescript(_SCHEMA)
        database.execute("INSERT INTO domains (id, name, type) VALUES (1, ?, 'NATIVE')", (zone.ZONE,))
        database.executemany(
            "INSERT INTO records (domain_id, name, type, ttl, prio, content) VALUES (1, ?, ?, ?, ?, ?)",
            _rows(),
        )


def _rows() -> Iterator[Sequence[object]]:
    parsed = dns.zone.from_text(zone.static_zone(), zone.ZONE, relativize=False)
    for name, ttl, record in parsed.iterate_rdatas():
        kind, content = dns.rdatatype.to_text(record.rdtype), record.to_text()
        words = content.split()
        if (
            kind == "SRV"
        ):  # PowerDNS has the priority of SRV in a column of its own, and names without the dot
            content = " ".join([*words[1:-1], words[-1].rstrip(".")])
        elif kind == "SOA":
            content = " ".join([*(word.rstrip(".") for word in words[:2]), *words[2:]])
        elif kind in ("NS", "NAPTR"):
            content = content.rstrip(".")
        prio = int(words[0]) if kind == "SRV" else 0
        yield name.to_text().rstrip("."), kind, ttl, prio, content


def _sign(host: Host, folder: Path) -> None:
    run_command(host, ["pdnsutil", f"--config-dir={folder}", "secure-zone", zone.ZONE])
