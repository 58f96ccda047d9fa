"""A parent zone in PowerDNS's tables, and the real PostgreSQL that holds it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.namespaces import Namespace
from tests.support.waiting import until

PARENT = "example.net"
RECORDS = [
    ("@", "SOA", "ns1.example.net. h.example.net. 1 7200 900 1209600 5"),
    ("@", "NS", f"ns1.{PARENT}."),
    ("ns1", "A", "127.0.0.1"),
    ("www", "A", "10.0.1.80"),
    ("ims", "NS", f"ns1.ims.{PARENT}."),
    ("ns1.ims", "A", "10.0.1.1"),
]
Settings = list[tuple[str, str]]


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
