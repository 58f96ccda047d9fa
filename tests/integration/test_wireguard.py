"""The files of `rspdns-registrar wireguard`, used by wg-quick on three hosts: SCTP goes by tunnel only."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from registrar_config import load_inventory, render_files

from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.waiting import until

ASK = str(REPOSITORY / "tests/support/ask_registrar.py")
REACH = str(REPOSITORY / "tests/support/reach_sctp.py")
INVENTORY = """\
[[registrar]]
name = "r1"
address = "10.53.0.1"
[[registrar]]
name = "r2"
address = "10.99.0.2"
outside = "10.53.0.2"
[[backend]]
name = "ns"
addresses = ["10.53.0.3"]
[wireguard]
"""
INSIDE = {"r1": "10.53.0.1", "r2": "10.99.0.2", "ns": "10.53.0.3"}
OUTSIDE = {**INSIDE, "r2": "10.53.0.2"}
COUNT = """table inet below {
  counter plain { }
  counter plain_tcp { }
  counter tunnel { }
  chain input {
    type filter hook input priority -300; policy accept;
    iifname "below" meta l4proto sctp counter name plain
    iifname "below" meta l4proto tcp counter name plain_tcp
    iifname "below" udp dport 51820 counter name tunnel
  }
}
"""
START = """
mkdir -p /run/wireguard
mount -t tmpfs none /run/wireguard
wg-quick up "$1"
exec sleep infinity
"""
"""wg finds wireguard-go at a socket that has the interface's name: hosts must not share the folder."""


def load(host: Namespace, rules: str) -> None:
    done = subprocess.run(
        host.command("nft", "-f", "-"), input=rules, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def hosts(namespaces: Callable[[], Namespace], tmp_path: Path) -> dict[str, Namespace]:
    """Three hosts on an open network, with the packet filters and the tunnels of their inventory."""
    inventory = tmp_path / "inventory.toml"
    inventory.write_text(INVENTORY)
    command = (
        sys.executable,
        "-m",
        "registrar_config",
        "wireguard",
        inventory,
        "--output",
        tmp_path / "made",
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    network = namespaces()
    network.ip("link", "add", "lan", "type", "bridge", "forward_delay", "0")
    network.ip("link", "set", "lan", "up")
    made = {name: namespaces() for name in INSIDE}
    for name, host in made.items():
        network.ip("link", "add", name, "type", "veth", "peer", "name", "below", "netns", host.name)
        network.ip("link", "set", name, "up", "master", "lan")
        host.ip("address", "add", f"{OUTSIDE[name]}/24", "dev", "below")
        host.ip("link", "set", "below", "up")
        load(host, COUNT)
        load(host, render_files(load_inventory(inventory))[name]["rspdns.nft"])
        log = tmp_path / f"{name}.wg-quick"
        file = str(tmp_path / "made" / INSIDE[name] / "rspdns0.conf")
        host.start("unshare", "--mount", "sh", "-ec", START, "sh", file, log=log)
        until(lambda: "sctp" in host.run("ip", "rule").stdout, 30, log)  # noqa: B023 - waited for at once
        key = Path(file).read_text().split("PrivateKey = ")[1].split()[0]
        assert key not in log.read_text() + done.stdout + done.stderr
    return made


def counted(host: Namespace, name: str) -> int:
    said = host.run("nft", "list", "counter", "inet", "below", name)
    return int(said.stdout.split("packets ")[1].split()[0])


def test_sctp_goes_through_the_tunnel_and_nothing_else_gets_in(
    hosts: dict[str, Namespace], tmp_path: Path
) -> None:
    for number, name, other in ((1, "r1", "r2"), (2, "r2", "r1")):
        command = [sys.executable, "-m", "registrar_config", "run", f"--number={number}", "--force"]
        command += [f"--address={INSIDE[name]}", f"--peer={INSIDE[other]}"]
        command += ["--agent-reregistration-ms=300", "--log-json"]
        hosts[name].start(*command, sctp=True, log=tmp_path / f"{name}.log")

    def listed(by: str, at: str, sentinel: int) -> bool:
        asked = (sys.executable, ASK, INSIDE[at], f"rspdns-sentinel-{sentinel}")
        said = hosts[by].run(*asked, sctp=True)
        return said.returncode == 0 and bool(json.loads(said.stdout)["pool_elements"])

    for by, at, sentinel in (("ns", "r1", 2), ("ns", "r2", 1)):
        until(lambda: listed(by, at, sentinel), 40, f"registrar {at} lists no sentinel {sentinel}")  # noqa: B023 - waited for at once
    for host in hosts.values():
        assert counted(host, "tunnel") > 10
        assert counted(host, "plain") == 0
    before = counted(hosts["r1"], "plain_tcp")
    hosts["ns"].run(sys.executable, "-c", f"import socket; socket.socket().connect_ex(('{INSIDE['r1']}', 9))")
    assert counted(hosts["r1"], "plain_tcp") > before, "TCP goes as without the tunnel"

    # Without its key the name server is nobody: its SCTP comes as it is, and is dropped.
    hosts["ns"].ip("rule", "del", "ipproto", "sctp", "table", "51820")
    reached = hosts["ns"].run(sys.executable, REACH, "0", f"{INSIDE['r1']}:3863", sctp=True)
    assert json.loads(reached.stdout) == [], reached.stderr
    assert counted(hosts["r1"], "plain") > 0
