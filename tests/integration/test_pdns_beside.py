"""Every backend that `rspdns pdns-conf --beside` names, with its real server.

Both zones are answered, the list of zones is read again once, and changes are purged at once."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pdns_config import BESIDE, OtherBackend, pdns_conf

from tests.backend.making import UDP, ZONE, member, view, views, zone
from tests.support.namespaces import Namespace, own_namespace
from tests.support.parent_zone import PARENT, RECORDS, Settings, gpgsql, run, sql
from tests.support.served import served, status
from tests.support.waiting import until

OWNER = f"_sip._udp.as.{ZONE}"
Prepare = Callable[[Path, Namespace], Settings]


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
