"""The rendered packet filters in the kernel: who reaches whom over IPv6, and whose announcements arrive.

Over IPv4 and with the whole chain behind them: test_registrar_network.py.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from registrar_config import load_inventory, render_files

from tests.support.namespaces import REPOSITORY, Namespace

REACH = str(REPOSITORY / "tests/support/reach_sctp.py")
ANNOUNCEMENTS = str(REPOSITORY / "tests/support/announcements.py")
HOSTS = {"r1": 11, "r2": 12, "ns1": 21, "ns2": 22, "as1": 31, "client": 61}
GROUPS = {4: "239.0.0.50", 6: "ff05::50"}
AGENT_PORT, SERVER_PORT = 5999, 5061
# r2's own would let nobody but registrars answer, and the client has nothing to do with all this.
FILTERED = ("r1", "ns1", "ns2", "as1")
INVENTORY = """\
announce = "{group}"
[[registrar]]
name = "r1"
address = "{r1}"
[[registrar]]
name = "r2"
address = "{r2}"
[[registrar]]
name = "r3"
address = "{r2}"
[[agent]]
name = "as1"
addresses = ["{as1}"]
sctp_ports = [5061]
[[backend]]
name = "ns1"
addresses = ["{ns1}"]
follow = "poll"
[[backend]]
name = "ns2"
addresses = ["{ns2}"]
follow = "enrp"
"""
PATIENCE_S = 40


def address(name: str, version: int = 6) -> str:
    return f"fd53::{HOSTS[name]}" if version == 6 else f"10.54.0.{HOSTS[name]}"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Namespace]]:
    """Hosts on one Ethernet; two registrars announce themselves from r2, one over IPv4, one over IPv6."""
    made: dict[str, Namespace] = {}
    try:
        lan = made["lan"] = Namespace(f"rspdns-filter-{os.getpid()}-lan")
        lan.ip("link", "add", "lan0", "type", "bridge", "forward_delay", "0")
        lan.ip("link", "set", "lan0", "up")
        for name in HOSTS:
            host = made[name] = Namespace(f"rspdns-filter-{os.getpid()}-{name}")
            lan.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            lan.ip("link", "set", name, "up", "master", "lan0")
            host.ip("link", "set", "eth0", "up")
            host.ip("address", "add", f"{address(name)}/64", "dev", "eth0", "nodad")
            host.ip("address", "add", f"{address(name, 4)}/24", "dev", "eth0")
            host.ip("route", "add", "224.0.0.0/4", "dev", "eth0")
        for version, index in ((6, 0), (4, 1)):
            own = f"[{address('r2')}]" if version == 6 else address("r2", 4)
            group = f"[{GROUPS[6]}]" if version == 6 else GROUPS[4]
            made["r2"].start(
                *(sys.executable, "-m", "registrar_config", "run", "--no-sentinel", "--number=1"),
                *(f"--address={own}:{3863 + index}", f"--enrp-port={9901 + index}", f"--announce={group}"),
                *(f"--peer={own}:{port}" for port in (9901, 9902, 9903)),
                sctp=True,
                log=tmp_path_factory.mktemp("registrar") / f"{version}.log",
            )
        yield made
    finally:
        for namespace in made.values():
            namespace.close()


def load_filters(hosts: Mapping[str, Namespace], folder: Path, version: int) -> None:
    file = folder / "inventory.toml"
    group = f"[{GROUPS[6]}]:3863" if version == 6 else f"{GROUPS[4]}:3863"
    file.write_text(INVENTORY.format(group=group, **{name: address(name, version) for name in HOSTS}))
    for name, files in render_files(load_inventory(file)).items():
        if name in FILTERED:
            path = folder / f"{name}.nft"
            path.write_text(files["rspdns.nft"])
            done = hosts[name].run("nft", "-f", str(path))
            assert done.returncode == 0, done.stderr


def until_lines(log: Path, wanted: set[str]) -> set[str]:
    end_s = time.monotonic() + PATIENCE_S
    while not wanted <= (lines := set(log.read_text().splitlines())):
        assert time.monotonic() < end_s, lines
        time.sleep(0.05)
    return lines


def test_packet_filters_let_through_over_ipv6_only_traffic_between_the_right_hosts(
    hosts: Mapping[str, Namespace], tmp_path: Path
) -> None:
    load_filters(hosts, tmp_path, 6)
    asap, enrp = (f"[{address('r1')}]:{port}" for port in (3863, 9901))
    agent, server = (f"[{address('as1')}]:{port}" for port in (AGENT_PORT, SERVER_PORT))
    for name, endpoints in (("r1", (asap, enrp)), ("as1", (agent, server))):
        log = tmp_path / name
        hosts[name].start(sys.executable, REACH, "--listen", *endpoints, sctp=True, log=log)
        until_lines(log, {"listening"})
    # The server's port is everyone's, but its answers don't pass the filters of ns1 and ns2.
    expected = {
        "client": {server},
        "as1": {asap, agent, server},
        "ns1": {asap},
        "ns2": {asap, enrp},
        "r2": {enrp, agent, server},
    }
    asking = {
        name: subprocess.Popen(
            hosts[name].command(
                *(sys.executable, REACH, str(len(reached)), asap, enrp, agent, server), sctp=True
            ),
            stdout=subprocess.PIPE,
        )
        for name, reached in expected.items()
    }
    found = {name: set(json.loads(program.communicate(timeout=150)[0])) for name, program in asking.items()}
    assert found == expected


@pytest.mark.parametrize("version", [4, 6])
def test_announcements_of_registrars_reach_agents_and_forged_ones_nobody(
    hosts: Mapping[str, Namespace], tmp_path: Path, version: int
) -> None:
    load_filters(hosts, tmp_path, version)
    registrar, forger = address("r2", version), address("client", version)
    hosts["client"].start(sys.executable, ANNOUNCEMENTS, "forge", GROUPS[version])
    for name in ("r2", "as1", "ns1"):
        hosts[name].start(sys.executable, ANNOUNCEMENTS, "hear", GROUPS[version], log=tmp_path / name)
    until_lines(tmp_path / "r2", {registrar, forger})  # it has no filter
    assert until_lines(tmp_path / "as1", {registrar}) == {registrar}
    assert until_lines(tmp_path / "ns1", set()) == set()


@pytest.mark.parametrize("names", ["/etc/protocols", "/dev/null"], ids=["with", "without"])
def test_check_sees_a_loaded_filter_with_and_without_names_of_protocols(
    namespace: Namespace, tmp_path: Path, names: str
) -> None:
    """A small Debian lacks /etc/protocols: nft then shows SCTP as 132."""
    namespace.give_address("10.54.0.11")
    inventory, changed = tmp_path / "inventory.toml", tmp_path / "changed.toml"
    inventory.write_text('[[registrar]]\nname = "r1"\naddress = "10.54.0.11"\n')
    changed.write_text(f'{inventory.read_text()}[[backend]]\nname = "all"\naddresses = ["10.54.0.0/24"]\n')
    files = render_files(load_inventory(inventory))["r1"]
    (tmp_path / "rspdns.nft").write_text(files["rspdns.nft"])
    check = '"$2" -m registrar_config check'
    script = f'mount --bind "$1" /etc/protocols; {check} "$3" || :; nft -f "$4"; {check} "$3" || :; '
    script += f'echo changed >&2; exec {check} "$5"'
    paths = map(str, (inventory, tmp_path / "rspdns.nft", changed))
    done = namespace.run("unshare", "--mount", "sh", "-ec", script, "sh", names, sys.executable, *paths)
    of_inventory, of_changed = done.stderr.split("changed\n")
    assert of_inventory.count("no packet filter protects r1 on this host") == 1, "before it was loaded"
    assert of_inventory.count("no gate stands before registrar r1 of this host") == 2
    assert "is not made from this inventory" not in of_inventory
    assert "the packet filter loaded on this host is not made from this inventory" in of_changed
