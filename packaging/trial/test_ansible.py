"""The Ansible role on a fresh Debian under systemd: registrars, name server and sidecar of one inventory.

`make test-ansible` builds the packages and runs this; it needs root and debootstrap, and is no part of
`make test`.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rserpool import new_pool_key, pool_key_line
from tests.ppe_agent.servers import TCP_SERVER
from tests.support.live_systemd import (
    NAME,
    NETWORK,
    PATIENCE_S,
    POOL,
    REGISTRAR_UNITS,
    SERVER,
    LiveSystemd,
    inventory,
    live_systemd,
)
from tests.support.namespaces import REPOSITORY

pytestmark = pytest.mark.timeout(1800)
SUITE = os.environ.get("SUITE", "trixie")
PACKAGES = REPOSITORY / "build" / "packages" / SUITE
ANSIBLE = REPOSITORY / "build" / "ansible" / "bin"
ROLE = REPOSITORY / "packaging" / "ansible"
OF_ANSIBLE = ("python3-apt", "python-apt-common", "distro-info-data")
"""The packages that Ansible's module apt needs on a host; Debian's installer installs them."""
ZONE = f'zone = "example.net"\nstatic = "example.net.zone"\n{POOL}key = "/etc/rspdns/keys/web-tcp.key"\n'
FIXED = "$TTL 3600\n@ SOA ns1 hostmaster 1 7200 900 1209600 300\n@ NS ns1\nns1 A 127.0.0.1\n"
SERVERS = [
    {
        "name": "one",
        "handle": "web-tcp",
        "transport": "tcp",
        "port": 8080,
        "check": [{"type": "tcp-hold"}],
        "load": {"source": "none"},
    }
]
UNITS = ["rspdns", "ppe-agent", *REGISTRAR_UNITS]


class Site:
    """The machine, and what Ansible is told about it."""

    def __init__(self, machine: LiveSystemd, folder: Path) -> None:
        self.machine = machine
        self.zones = folder / "zones"
        self.zones.mkdir()
        (self.zones / "example.net.toml").write_text(ZONE)
        (self.zones / "example.net.zone").write_text(FIXED)
        self.keys = folder / "keys"
        self.keys.mkdir()
        (self.keys / "web-tcp.key").write_text(pool_key_line(new_pool_key()))
        (self.keys / "web-tcp.key").chmod(0o640)
        self.inventory = folder / "inventory.toml"
        self.inventory.write_text(inventory("10.99.0.1"))
        self.variables: dict[str, Any] = {
            "ansible_connection": "inside",
            "ansible_python_interpreter": "/usr/bin/python3",
            "inside_pid": machine.pid,
            "rspdns_packages": str(PACKAGES),
            "rspdns_update_apt": False,
            "rspdns_sctp_userland": True,
            "rspdns_zones": str(self.zones),
            "rspdns_keys": str(self.keys),
            "rspdns_servers": SERVERS,
        }

    def play(self, **more: Any) -> tuple[int, str]:
        """Run the playbook; return its exit status, and what it prints."""
        command = [str(ANSIBLE / "ansible-playbook"), "-i", "rspdns_inventory.py", "site.yml"]
        done = subprocess.run(
            [*command, "--extra-vars", json.dumps(self.variables | more)],
            cwd=ROLE,
            env={
                **os.environ,
                "RSPDNS_INVENTORY": str(self.inventory),
                "ANSIBLE_CONNECTION_PLUGINS": str(REPOSITORY / "packaging/trial/connection_plugins"),
                "ANSIBLE_NOCOLOR": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def changes(self, **more: Any) -> set[str]:
        """Run the playbook, which must succeed; return the names of what changed something."""
        status, said = self.play(**more)
        assert status == 0, said
        changed = set()
        name = ""
        for line in said.splitlines():
            if title := re.match(r"(?:TASK|RUNNING HANDLER) \[(?:rspdns : )?(.*)\] \**$", line):
                name = title[1]
            elif line.startswith("changed:"):
                changed.add(name)
        return changed

    def pids(self) -> dict[str, int]:
        return {unit: self.machine.main_pid(unit) for unit in UNITS}

    def until_answered(self, ports: set[str]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            said = self.machine.try_run("dig", "@127.0.0.1", "+tries=1", "+time=5", NAME, "SRV").stdout
            if set(re.findall(r"\sSRV\s+\d+ \d+ (\d+) ", said)) == ports:
                return
            assert time.monotonic() < deadline_s, said + self.machine.journal()
            time.sleep(0.2)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A fresh Debian under systemd, without a network, with a web server that nobody watches yet."""
    made = subprocess.run(
        [REPOSITORY / "packaging" / "roots.sh", SUITE, "TEST"], capture_output=True, text=True, check=True
    )
    root = Path(made.stdout.strip())
    layer = tmp_path_factory.mktemp("layer")
    fetch = f"apt-get -qq update && cd /var/cache && apt-get -qq download {' '.join(OF_ANSIBLE)}"
    enter = [REPOSITORY / "packaging" / "in_root.sh", root, layer, "sh", "-c", fetch]
    subprocess.run(enter, check=True, capture_output=True)
    files = tmp_path_factory.mktemp("files")
    (files / "packages").mkdir()
    for package in (layer / "upper/var/cache").glob("*.deb"):
        package.rename(files / "packages" / package.name)
    with live_systemd(tmp_path_factory.mktemp("live"), files, NETWORK, root) as machine:
        install = "apt-get install --yes --no-install-recommends /packages/*.deb"
        machine.run("env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", install)
        machine.write("/opt/server.py", TCP_SERVER)
        machine.write("/etc/systemd/system/server.service", SERVER)
        machine.run("systemctl", "start", "server")
        yield Site(machine, tmp_path_factory.mktemp("site"))


def test_first_run_makes_everything_answer_and_second_run_changes_nothing(site: Site) -> None:
    assert "Our packages" in site.changes()
    site.until_answered({"8080"})
    assert " drop" in site.machine.run("nft", "list", "table", "inet", "rspdns")
    before = site.pids()
    assert site.changes() == set()
    assert site.pids() == before


def test_only_what_changed_is_restarted(site: Site) -> None:
    site.until_answered({"8080"})
    before = site.pids()
    (site.zones / "example.net.toml").write_text(ZONE + "max_answers = 4\n")
    assert site.changes() == {"New zones are brought here", "Zones", "Reload rspdns"}
    assert site.pids() == before, "a zone is reloaded, nothing is restarted"
    second = {**SERVERS[0], "name": "two", "port": 8081}
    assert site.changes(rspdns_servers=[*SERVERS, second]) == {
        "Keys of the servers",
        "Configuration of the sidecar",
        "Reload the sidecar",
    }
    assert site.pids() == before
    site.variables["rspdns_name_server_extra"] = "[state]\npath = '/var/lib/rspdns'"
    changed = site.changes()
    assert "Restart rspdns" in changed
    after = site.pids()
    assert after["rspdns"] != before["rspdns"]
    assert {unit: pid for unit, pid in after.items() if unit != "rspdns"} == {
        unit: pid for unit, pid in before.items() if unit != "rspdns"
    }
    site.until_answered({"8080"})


def test_wrong_configuration_is_refused_before_it_takes_the_place_of_what_runs(site: Site) -> None:
    site.until_answered({"8080"})
    before = site.pids()
    right = (site.zones / "example.net.toml").read_text()
    (site.zones / "example.net.toml").write_text(right + "max_answrs = 4\n")
    status, said = site.play()
    assert status != 0
    assert "did you mean" in said
    assert (site.machine.root / "etc/rspdns/zones.d/example.net.toml").read_text() == right
    (site.zones / "example.net.toml").write_text(right)
    wrong = [{**SERVERS[0], "port": 0}]
    status, said = site.play(rspdns_servers=wrong)
    assert status != 0
    assert "port" in said
    assert "port = 8080" in (site.machine.root / "etc/ppe-agent/agent.toml").read_text()
    assert site.pids() == before
    site.until_answered({"8080"})
