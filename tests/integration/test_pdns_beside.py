"""Every backend that `rspdns pdns-conf --beside` names, with its real server.

Both zones are answered, the list of zones is read again once, and changes are purged at once."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pdns_config import BESIDE, OtherBackend, pdns_conf

from tests.backend.making import UDP, ZONE, member, view, views, zone
from tests.support.namespaces import Namespace, own_namespace
from tests.support.served import served, status
from tests.support.waiting import until

PARENT = ZONE.partition(".")[2]
OWNER = f"_sip._udp.as.{ZONE}"
RECORDS = [
    ("@", "SOA", "ns1.example.net. h.example.net. 1 7200 900 1209600 5"),
    ("@", "NS", f"ns1.{PARENT}."),
    ("ns1", "A", "127.0.0.1"),
    ("www", "A", "10.0.1.80"),
    ("ims", "NS", f"ns1.ims.{PARENT}."),
    ("ns1.ims", "A", "10.0.1.1"),
]
Settings = list[tuple[str, str]]
Prepare = Callable[[Path, Namespace], Settings]


def full(owner: str) -> str:
    return PARENT if owner == "@" else f"{owner}.{PARENT}"


def sql() -> str:
    """The parent zone, for PowerDNS's tables of every database."""
    rows = [
        f"(1, '{full(owner)}', '{kind}', '{content.replace('. ', ' ').removesuffix('.')}', 3600, true)"
        for owner, kind, content in RECORDS
    ]
    table = "records (domain_id, name, type, content, ttl, auth)"
    return "\n".join(
        [
            f"INSERT INTO domains (id, name, type) VALUES (1, '{PARENT}', 'NATIVE');",  # noqa: S608
            f"INSERT INTO {table} VALUES {', '.join(rows)};",  # noqa: S608
        ]
    )


def run(*command: str, text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def bind(folder: Path, namespace: Namespace) -> Settings:
    lines = [f"$ORIGIN {PARENT}.", "$TTL 3600", *(" ".join(record) for record in RECORDS)]
    (folder / "parent.zone").write_text("\n".join(lines) + "\n")
    named = folder / "named.conf"
    named.write_text(f'zone "{PARENT}" {{ type master; file "{folder}/parent.zone"; }};\n')
    return [("bind-config", str(named))]


def gsqlite3(folder: Path, namespace: Namespace) -> Settings:
    schema = Path("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql").read_text()
    program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.stdin.read())"
    run("/usr/bin/python3", "-c", program, str(folder / "db"), text=schema + sql())
    return [("gsqlite3-database", str(folder / "db"))]


def lmdb(folder: Path, namespace: Namespace) -> Settings:
    (folder / "pdns.conf").write_text(f"launch=lmdb\nlmdb-filename={folder}/db\n")
    run("pdnsutil", f"--config-dir={folder}", "create-zone", PARENT)
    for owner, kind, content in RECORDS:
        run("pdnsutil", f"--config-dir={folder}", "replace-rrset", PARENT, owner, kind, "3600", content)
    return [("lmdb-filename", f"{folder}/db")]


def gmysql(folder: Path, namespace: Namespace) -> Settings:
    data, path = folder / "mysql", folder / "mysql.sock"
    options = ["--no-defaults", f"--datadir={data}", "--user=root"]
    run("mariadb-install-db", *options, "--auth-root-authentication-method=normal", "--skip-test-db")
    namespace.start(
        *("mariadbd", *options, f"--socket={path}", "--skip-networking", f"--pid-file={folder}/pid"),
        log=folder / "log",
    )
    client = ["mariadb", "--no-defaults", f"--socket={path}"]
    until(path.exists)
    run(*client, text="CREATE DATABASE pdns")
    schema = Path("/usr/share/pdns-backend-mysql/schema/schema.mysql.sql").read_text()
    run(*client, "pdns", text=schema + sql())
    return [("gmysql-socket", str(path)), ("gmysql-dbname", "pdns"), ("gmysql-user", "root")]


def gpgsql(folder: Path, namespace: Namespace) -> Settings:
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"))
    data = folder / "postgres"
    data.mkdir()
    shutil.chown(data, "postgres", "postgres")
    as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    made = ["--auth=trust", "--no-sync", "--username=postgres"]
    run(*as_postgres, f"{programs}/initdb", f"--pgdata={data}", *made)
    # fsync is off: the test's data need not survive the machine.
    options = ["-D", str(data), "-k", str(data), "-c", "listen_addresses=", "-c", "fsync=off"]
    namespace.start(*as_postgres, f"{programs}/postgres", *options, log=folder / "log")
    client = ["psql", f"--host={data}", "--username=postgres", "--quiet", "--set=ON_ERROR_STOP=1"]
    until(lambda: subprocess.run([*client, "--list"], capture_output=True, check=False).returncode == 0)
    schema = Path("/usr/share/pdns-backend-pgsql/schema/schema.pgsql.sql").read_text()
    run(*client, text=schema + sql())
    return [("gpgsql-host", str(data)), ("gpgsql-dbname", "postgres"), ("gpgsql-user", "postgres")]


PREPARE: dict[str, Prepare] = {
    made.__name__: made for made in (bind, gmysql, gpgsql, gsqlite3, lmdb)
}  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may enter, for databases that refuse to run as root."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.parametrize("name", BESIDE)
def test_both_backends_answer_and_changes_are_purged_at_once(name: str, folder: Path, tmp_path: Path) -> None:
    with own_namespace() as namespace:
        beside = OtherBackend(name, PREPARE[name](folder, namespace))
        with served([zone(UDP)], views(view(member(1))), tmp_path, beside=beside) as made:
            pdns, control = made.pdns, made.backend.purger.sockets[0]
            until(lambda: pdns.short(f"www.{PARENT}", "A") == ["10.0.1.80"])
            assert len(pdns.short(OWNER, "SRV")) == 1
            assert status(pdns.dig(f"nobody.{ZONE}", "A")) == "NXDOMAIN"
            assert status(pdns.dig(f"nobody.{PARENT}", "A")) == "NXDOMAIN"
            made.backend.set_zones([zone(UDP)], made.backend.views)  # has the list of zones read again
            until(lambda: control.waiting == 0 and control.counts.commands > 0)
            asked = control.counts.commands
            time.sleep(0.6)  # a command that counts as failed comes again each 0.25 s
            assert (control.problem, control.counts.commands) == (None, asked)
            made.backend.publish(views(view(member(1), member(2))))
            until(lambda: len(pdns.short(OWNER, "SRV")) == 2)


def test_a_backend_that_was_never_tried_is_refused_with_the_names_of_those_that_were() -> None:
    result = CliRunner().invoke(pdns_conf, ["--beside", "mysql"])
    assert result.exit_code == 1
    assert all(name in result.output for name in BESIDE)
