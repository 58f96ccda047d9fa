"""The page "From PowerDNS with PostgreSQL to one live name", with the real PostgreSQL and real registrars.

Its paths, addresses and networks are those of the test; the rest is done by the commands of the page.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

from click.testing import CliRunner
from pdns_config import pdns_conf

from tests.support.backend import ADDRESS, HANDLE, OWNER, ZONE
from tests.support.chain import SIP_PORTS, Chain
from tests.support.namespaces import REPOSITORY, kill, own_namespace
from tests.support.pages import blocks
from tests.support.parent_zone import PARENT, gpgsql
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs" / "how-to" / "dns" / "beside-postgresql.md").read_text()
LINES = [shlex.split(line) for block in blocks(PAGE, "bash") for line in block.splitlines()]


def lines(*first: str) -> list[list[str]]:
    """The commands of the page that begin so."""
    found = [line[len(first) :] for line in LINES if line[: len(first)] == list(first)]
    assert found
    return found


def made_conf(chain: Chain, settings: list[tuple[str, str]]) -> str:
    """The output of the page's `rspdns pdns-conf`, with this database, not at this host's own places."""
    (words,) = lines("rspdns", "pdns-conf")
    words = words[: words.index(">")]
    given = {word.partition("=")[0] for word in words if word.startswith("gpgsql-")}
    assert given == {"gpgsql-host", "gpgsql-dbname", "gpgsql-user", "gpgsql-password"}
    own = [f"--setting={key}={value}" for key, value in settings]
    options = [*words[:2], *own, "--setting=gpgsql-dnssec=yes", "--user=", "--listen=127.0.0.1"]
    options += [f"--socket-dir={chain.pdns.folder}", f"--connector=unix:{chain.folder}/remote.sock"]
    done = CliRunner().invoke(pdns_conf, options)
    assert done.exit_code == 0, done.output
    return done.output


def add_zone(chain: Chain) -> None:
    """Have the page's command make the zone."""
    for file in chain.backend.config.with_name("zones.d").iterdir():
        file.unlink()
    (words,) = lines("rspdns", "zone", "add")
    words[words.index("--accept") + 1] = f"{ADDRESS}/32"
    words[words.index("--handle") + 1] = HANDLE
    done = chain.backend.command("zone", "add", *words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_name_is_alive_beside_the_zones_of_postgresql(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, own_namespace() as namespace:
        Path(folder).chmod(0o755)  # PostgreSQL refuses to run as root, and must enter
        settings = gpgsql(Path(folder), namespace)
        chain = Chain(namespace, tmp_path)
        servers = {port: chain.start_sip(port) for port in SIP_PORTS}
        chain.start_sidecar()
        add_zone(chain)
        chain.backend.start()
        pdns = chain.pdns
        (pdns.folder / "pdns.conf").write_text(made_conf(chain, settings))
        pdns.start(PARENT)
        for owner, kind in (("ims", "NS"), ("ns1.ims", "A")):
            pdns.util("delete-rrset", PARENT, owner, kind)
        pdns.util("secure-zone", PARENT)
        for words in (line for line in LINES if line[0] == "pdnsutil"):
            pdns.util(*words[1:])
        pdns.util("check-zone", PARENT)

        until(lambda: chain.targets_at(OWNER) == set(SIP_PORTS), 60, chain.backend.log)
        assert pdns.short(f"www.{PARENT}", "A") == ["10.0.1.80"]
        kill(servers.pop(SIP_PORTS[0]))
        until(lambda: chain.targets_at(OWNER) == set(servers), 20, chain.backend.log)

        signed = pdns.dig("+dnssec", f"www.{PARENT}", "A")
        assert "RRSIG\tA" in signed, "the parent stays signed"
        assert "RRSIG" not in pdns.dig("+dnssec", OWNER, "SRV")
        unproved = pdns.dig("+dnssec", ZONE, "DS")
        assert re.search(rf"^{ZONE}\.\s.*NSEC.*\sNS RRSIG NSEC", unproved, re.M), unproved
