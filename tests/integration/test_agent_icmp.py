"""The check `icmp`, on the kernel's own replies; as a program, the check in a namespace."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import pytest
from ppe_agent.checks.configuration import IcmpConfig
from ppe_agent.checks.icmp import IcmpCheck, echo_request, is_reply
from ppe_agent.checks.make import make_check

from tests.support.namespaces import REPOSITORY, Namespace

OTHERS = ("10.77.0.2", "fd77::2")
GROUPS = Path("/proc/sys/net/ipv4/ping_group_range")
FILTER = "table inet t {{ chain c {{ type filter hook input priority 0; {rules} }}; }}"
DROP = FILTER.format(rules="icmp type echo-request drop; icmpv6 type echo-request drop;")
REJECT = FILTER.format(rules="icmp type echo-request reject;")
AGENT = """\
registrars = ["10.77.0.2"]
[state]
path = "{folder}/state"
[control]
path = "{folder}/control.sock"
[[as]]
name = "sip-1"
handle = "sip"
transport = "udp"
remote = true
address = "10.77.0.2"
port = 5060
policy = "round-robin"
[[as.check]]
type = "sip-options"
[[as.check]]
type = "icmp"
"""


def ask(address: str, timeout_ms: int = 5000) -> None:
    check = make_check(IcmpConfig(type="icmp", timeout_ms=timeout_ms), ip_address(address), 5060, "udp")
    assert isinstance(check, IcmpCheck)
    finding = asyncio.run(check.attempt())
    print(f"{finding.life}: {finding.words}")


def ask_all(other: str) -> None:
    """Ask while groups and filters change; `other` is the namespace of the other host."""

    def there(*command: str) -> None:
        subprocess.run(["nsenter", f"--net=/run/netns/{other}", "--", *command], check=True)

    ask("127.0.0.1")
    GROUPS.write_text(f"{os.getegid()} {os.getegid()}")
    for address in ("127.0.0.1", "::1", *OTHERS):
        ask(address)
    there("nft", DROP)
    for address in OTHERS:
        ask(address, 400)
    there("nft", "flush ruleset")
    ask(OTHERS[0])
    there("nft", REJECT)
    ask(OTHERS[0])


@pytest.fixture
def hosts(namespaces: Callable[[], Namespace]) -> tuple[Namespace, Namespace]:
    """Two hosts with a wire between them, with the last address of each of `OTHERS` at the second."""
    here, there = namespaces(), namespaces()
    here.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", there.name)
    for host, number in ((here, 1), (there, 2)):
        host.ip("address", "add", f"10.77.0.{number}/24", "dev", "eth0")
        host.ip("address", "add", f"fd77::{number}/64", "dev", "eth0", "nodad")
        host.ip("link", "set", "eth0", "up")
    return here, there


def test_host_is_alive_while_it_echoes_and_silent_without(hosts: tuple[Namespace, Namespace]) -> None:
    here, there = hosts
    environment = ("env", f"PYTHONPATH={REPOSITORY}")
    result = here.run(*environment, sys.executable, "-m", __name__, there.name)
    assert result.stdout.splitlines() == [
        "unknown: net.ipv4.ping_group_range allows no ICMP socket: Permission denied",
        *["alive: echoes"] * 4,
        *[f"silent: no echo of {address} within 400 ms" for address in OTHERS],
        "alive: echoes",
        f"silent: {OTHERS[0]}: echo requests are rejected",
    ], result.stderr


def test_check_says_when_the_kernel_allows_no_echo_requests(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    here, _ = hosts
    (tmp_path / "agent.toml").write_text(AGENT.format(folder=tmp_path))

    def check(groups: str) -> subprocess.CompletedProcess[str]:
        here.run("sh", "-c", f"echo {groups} > {GROUPS}")
        program = [sys.executable, "-m", "ppe_agent.cli", "check", "-c", str(tmp_path / "agent.toml")]
        return here.run(*program)

    result = check("1 0")
    where = f"{tmp_path}/agent.toml:{AGENT.count(chr(10))}: as[0].check[1].type: "
    assert result.stderr.startswith(f"{where}net.ipv4.ping_group_range allows no group to send echo requests")
    assert (result.returncode, result.stdout) == (1, "")
    result = check("60000 60001")
    assert (result.returncode, result.stderr) == (0, "")
    assert "net.ipv4.ping_group_range allows the groups 60000 to 60001 to send" in result.stdout
    assert "no error if the sidecar runs as another user" in result.stdout
    result = check("0 2147483647")
    assert (result.returncode, result.stderr) == (0, "")
    assert "ping_group_range" not in result.stdout


@pytest.mark.parametrize("version", [4, 6])
def test_only_the_reply_with_the_token_is_life(version: int) -> None:
    """A host that asks itself hears its own requests, too."""
    request = echo_request(version, b"token")
    reply = {4: b"\0", 6: b"\x81"}[version] + request[1:]
    assert is_reply(version, reply, b"token")
    for other in (request, reply[:-1], reply[:7], b"", b"\x03" + reply[1:], reply + b"x"):
        assert not is_reply(version, other, b"token")


if __name__ == "__main__":
    ask_all(sys.argv[1])
