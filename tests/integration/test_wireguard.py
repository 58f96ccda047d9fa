"""The WireGuard example carries what registrars say to each other, and nothing of it is seen below."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.waiting import until

EXAMPLE = REPOSITORY / "registrar-config/examples/wireguard/rspdns0.conf"
ASK = str(REPOSITORY / "tests/support/ask_registrar.py")
SOCKETS = Path("/var/run/wireguard")
TUNNEL = ("10.0.0.1", "10.0.0.2")
BELOW = ("192.0.2.1", "192.0.2.2")
COUNT_SCTP = """table inet below {
  counter plain { }
  counter tunnel { }
  chain input {
    type filter hook input priority -300; policy accept;
    iifname "below" meta l4proto sctp counter name plain
    iifname "below" udp dport 51820 counter name tunnel
  }
}
"""


def key(*command: str, given: str = "") -> str:
    return subprocess.run(
        ["wg", *command], input=given, capture_output=True, text=True, check=True
    ).stdout.strip()


def configuration(number: int, private: list[str], public: list[str]) -> str:
    """Return the example as it is on one host: on the other one all names and addresses are exchanged."""
    text = EXAMPLE.read_text()
    if number == 1:
        for first, second in (("r1>", "r2>"), TUNNEL, BELOW):
            text = text.replace(first, "@").replace(second, first).replace("@", second)
    for host in (0, 1):
        text = text.replace(f"<private key of r{host + 1}>", private[host])
        text = text.replace(f"<public key of r{host + 1}>", public[host])
    return text


@pytest.fixture
def hosts(namespaces: Callable[[], Namespace], tmp_path: Path) -> Iterator[list[Namespace]]:
    """Two hosts on an open network, a tunnel between them."""
    made = [namespaces(), namespaces()]
    # The control socket is a file, which all namespaces share: so the names must differ.
    interfaces = [f"wg{host.name[-6:]}{number}" for number, host in enumerate(made)]
    try:
        connect(made, interfaces, tmp_path)
        yield made
    finally:
        for interface in interfaces:
            with suppress(FileNotFoundError):
                (SOCKETS / f"{interface}.sock").unlink()


def connect(made: list[Namespace], interfaces: list[str], tmp_path: Path) -> None:
    made[0].ip(*f"link add below type veth peer name below netns {made[1].name}".split())
    private = [key("genkey"), key("genkey")]
    public = [key("pubkey", given=one) for one in private]
    for number, host in enumerate(made):
        host.ip("address", "add", f"{BELOW[number]}/24", "dev", "below")
        host.ip("link", "set", "below", "up")
        interface = interfaces[number]
        start_wireguard(host, interface, tmp_path)
        file = tmp_path / f"{interface}.conf"
        file.write_text(configuration(number, private, public))
        file.chmod(0o600)
        stripped = tmp_path / f"{interface}.wg"
        stripped.write_text(host.run("wg-quick", "strip", str(file)).stdout)
        said = host.run("wg", "setconf", interface, str(stripped))
        assert said.returncode == 0, said.stderr
        host.ip("address", "add", f"{TUNNEL[number]}/24", "dev", interface)
        host.ip("link", "set", interface, "mtu", "1420", "up")
        counting = subprocess.run(
            host.command("nft", "-f", "-"), input=COUNT_SCTP, capture_output=True, text=True, check=False
        )
        assert counting.returncode == 0, counting.stderr


def start_wireguard(host: Namespace, interface: str, folder: Path) -> None:
    """The kernel's WireGuard where it has one, wireguard-go elsewhere."""
    if host.run("ip", "link", "add", interface, "type", "wireguard").returncode == 0:
        return
    log = folder / f"{interface}.log"

    host.start("wireguard-go", "-f", interface, log=log)
    until(lambda: host.run("wg", "show", interface).returncode == 0, 20, log)


def counted(host: Namespace, name: str) -> int:
    said = host.run("nft", "list", "counter", "inet", "below", name)
    return int(said.stdout.split("packets ")[1].split()[0])


def test_registrars_speak_through_the_tunnel_and_only_there(hosts: list[Namespace], tmp_path: Path) -> None:
    for number, host in enumerate(hosts):
        command = [sys.executable, "-m", "registrar_config", "run", f"--number={number + 1}", "--force"]
        command += [f"--address={TUNNEL[number]}", f"--peer={TUNNEL[1 - number]}"]
        command += ["--agent-reregistration-ms=300", "--log-json"]
        host.start(*command, sctp=True, log=tmp_path / f"registrar-{number}.log")

    def listed(at: int, sentinel: int) -> bool:
        asked = (sys.executable, ASK, TUNNEL[at], f"rspdns-sentinel-{sentinel}")
        said = hosts[at].run(*asked, sctp=True)
        return said.returncode == 0 and bool(json.loads(said.stdout)["pool_elements"])

    for at, sentinel in ((0, 2), (1, 1)):
        until(lambda: listed(at, sentinel), 60, f"registrar {at + 1} lists no sentinel {sentinel}")  # noqa: B023 - waited for at once
    for host in hosts:
        assert counted(host, "tunnel") > 10
        assert counted(host, "plain") == 0
