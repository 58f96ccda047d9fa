"""`rspdns override --everywhere` at two name servers: done, repeated, missed, different."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.backend import OWNER, run_here
from tests.support.certificates import authority, certificate_of
from tests.support.chain import SIP_PORTS, Chain
from tests.support.namespaces import REPOSITORY, end, own_namespace
from tests.support.pages import blocks
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs" / "how-to" / "dns" / "maintain-a-server.md").read_text()
LIVE = set(SIP_PORTS)
LAST = SIP_PORTS[-1]
TOKEN = "override-0123456789abcdef"  # noqa: S105 - of this test alone
SITE = '\n[[site]]\nname = "eu"\nnetworks = ["10.99.0.0/24"]\n\n'
COMPARED_S = 30.0
"""A comparison comes every 10 s."""


def peer_table(port: int, folder: Path) -> str:
    """The [[peer]] of the page, for these two name servers."""
    (table,) = (block for block in blocks(PAGE, "toml") if block.startswith("[[peer]]"))
    assert "tls_ca" in table
    text = table.replace("https://ns2.example.net:8054", f"https://127.0.0.1:{port}")
    text = text.replace("/etc/rspdns/ca.pem", str(folder / "ca.pem"))
    return text.replace("/etc/rspdns/peer-tokens/ns2", str(folder / "tokens")) + "\n"


class TwoNameServers:
    """The chain, and a second backend that follows the same registrars and has no PowerDNS."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        folder = chain.folder
        tokens = folder / "tokens"
        tokens.write_text(f"{TOKEN}  # the other name server\n")
        tokens.chmod(0o600)
        backend = chain.backend
        plain = backend.config.read_text() + SITE
        self.issuer = authority(folder, "ca")
        made = certificate_of(folder, self.issuer, 30)
        keys = f'write_tokens = "tokens"\ntls_certificate = "{made["crt"]}"\ntls_key = "{made["key"]}"\n'
        first = plain.replace("[admin]\n", f"[admin]\n{keys}")
        backend.config.write_text(first + peer_table(8055, folder))
        self.config, self.admin = folder / "second.toml", folder / "second.sock"
        second = first.replace("remote.sock", "second-remote.sock")
        second = second.replace(str(backend.admin), f'{self.admin}"\nlisten = "127.0.0.1:8055')
        second = second.replace(f"{folder}/state", f"{folder}/second-state")
        self.config.write_text(second + peer_table(8054, folder).replace('"ns2"', '"ns1"'))
        self.process = self.start_second()

    def start_second(self) -> subprocess.Popen[str]:
        command = (sys.executable, "-m", "rspdns.cli", "serve", "-c", str(self.config))
        self.process = self.chain.namespace.start(*command, sctp=True, log=self.chain.folder / "second.log")
        return self.process

    def status(self, *, second: bool = False) -> dict[str, Any]:
        status = self.chain.backend.status(self.admin if second else None)
        return status or {"overrides": [], "peers": [], "zones": []}

    def overrides(self, *, second: bool) -> list[dict[str, Any]]:
        return list(self.status(second=second)["overrides"])

    def override(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.chain.backend.command("override", *words)

    def second_override(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_here("override", *words, "-c", str(self.config))

    def until_served(self) -> None:
        """Wait until the second name server knows all servers and listens to its peer."""
        log = self.chain.folder / "second.log"
        until(lambda: in_dns(self) == LIVE, 60, log)
        listening = ("ss", "-Htln", "sport", "=", ":8055")
        until(lambda: self.chain.namespace.run(*listening).stdout, told=log)

    def until_peer(self, problem: bool, differences: int, *, second: bool = False) -> dict[str, Any]:
        """Wait until the status has such a peer; return it."""

        def peers() -> list[dict[str, Any]]:
            return [
                peer
                for peer in self.status(second=second)["peers"]
                if (peer["problem"] is not None, len(peer["differences"])) == (problem, differences)
            ]

        until(lambda: bool(peers()), COMPARED_S, lambda: json.dumps(self.status()["peers"]))
        return peers()[0]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNameServers]:
    with own_namespace() as namespace:
        chain = Chain(namespace, tmp_path_factory.mktemp("peers"))
        for port in SIP_PORTS:
            chain.start_sip(port)
        chain.start_sidecar()
        made = TwoNameServers(chain)
        chain.start()
        until(lambda: chain.targets_at(OWNER) == LIVE, told=chain.sidecar.log)
        made.until_served()
        yield made


def in_dns(pair: TwoNameServers) -> set[int]:
    """The ports of the servers that the second name server answers."""
    zones = pair.status(second=True)["zones"]
    return {member["port"] for zone in zones for pool in zone["pools"] for member in pool["members"]}


def down(pair: TwoNameServers) -> tuple[str, ...]:
    server = f"{pair.chain.address}:{LAST}"
    return server, "down", "--reason", "new kernel", "--for", "1h", "--everywhere"


def test_an_override_is_set_and_cleared_at_both(pair: TwoNameServers) -> None:
    done = pair.override(*down(pair))
    assert done.returncode == 0, done.stderr
    assert "ns2: done" in done.stdout
    (here,), (there,) = pair.overrides(second=False), pair.overrides(second=True)
    assert here["id"] == there["id"] is not None
    assert (here["ends_at_s"], here["reason"]) == (there["ends_at_s"], there["reason"])
    assert there["by"] == "root (the other name server)"
    until(lambda: in_dns(pair) == LIVE - {LAST})
    until(lambda: pair.chain.targets_at(OWNER) == LIVE - {LAST})

    again = pair.override(*down(pair))
    assert again.returncode == 0, again.stderr
    assert "it was set before, by root: new kernel; to change it, clear it first" in again.stdout
    assert pair.overrides(second=False) == [here]
    assert pair.overrides(second=True) == [there]
    assert pair.until_peer(False, 0)["compared_s"] is not None

    cleared = pair.override("clear", "--all", "--everywhere")
    assert cleared.returncode == 0, cleared.stderr
    assert (pair.overrides(second=False), pair.overrides(second=True)) == ([], [])
    until(lambda: in_dns(pair) == LIVE)
    until(lambda: pair.chain.targets_at(OWNER) == LIVE)


def test_a_peer_that_is_down_is_named_and_the_same_command_mends_it(pair: TwoNameServers) -> None:
    end(pair.process)
    done = pair.override(*down(pair))
    assert done.returncode == 1
    assert "ns2: not done: " in done.stderr
    assert "give the same command again" in done.stderr
    (here,) = pair.overrides(second=False)
    pair.until_peer(True, 0)
    assert "WARNING" in pair.chain.backend.command("status", "--nagios").stdout
    pair.start_second()
    peer = pair.until_peer(False, 1)
    assert peer["differences"] == [f"only here: down {pair.chain.address}:{LAST}"]
    nagios = pair.chain.backend.command("status", "--nagios").stdout
    assert f"peer ns2 has other overrides: only here: down {pair.chain.address}:{LAST}" in nagios
    assert "peer ns2 has other overrides" in pair.chain.backend.command("status").stdout

    pair.until_served()
    again = pair.override(*down(pair))
    assert again.returncode == 0, again.stderr
    (there,) = pair.overrides(second=True)
    assert (there["id"], there["ends_at_s"]) == (here["id"], here["ends_at_s"])
    assert pair.until_peer(False, 0)

    end(pair.process)
    missed = pair.override("clear", str(here["number"]), "--everywhere")
    assert missed.returncode == 1
    command = f"rspdns override clear {here['id']} --everywhere"
    assert command in missed.stderr
    assert pair.overrides(second=False) == []
    pair.start_second()
    until(lambda: bool(pair.overrides(second=True)), 60, pair.chain.folder / "second.log")
    until(lambda: "ns2: done" in pair.override(*command.split()[2:]).stdout, 30)
    assert pair.overrides(second=True) == []


def test_an_override_of_one_name_server_alone_is_a_difference(pair: TwoNameServers) -> None:
    server = f"{pair.chain.address}:{LAST}"
    pair.until_served()
    done = pair.second_override(server, "share=5%", "--reason", "canary")
    assert done.returncode == 0, done.stderr
    peer = pair.until_peer(False, 1)
    assert peer["differences"] == [f"not here: share=5% {server}, by root: canary"]
    spread = pair.second_override(server, "share=5%", "--reason", "canary", "--everywhere")
    assert spread.returncode == 0, spread.stderr
    pair.until_peer(False, 0)
    assert pair.override("clear", "--all", "--everywhere").returncode == 0
    assert (pair.overrides(second=False), pair.overrides(second=True)) == ([], [])


def test_site_is_drained_at_both_and_its_servers_are_the_last_resort(pair: TwoNameServers) -> None:
    done = pair.override("site", "eu", "drain", "--reason", "power works", "--for", "1h", "--everywhere")
    assert done.returncode == 0, done.stderr
    assert "ns2: done" in done.stdout
    (here,), (there,) = pair.overrides(second=False), pair.overrides(second=True)
    assert here["id"] == there["id"] is not None
    assert (here["servers"], there["servers"]) == ("site:eu", "site:eu")
    until(lambda: pair.until_peer(False, 0)["compared_s"] is not None)
    assert pair.chain.targets_at(OWNER) == LIVE, "no other site has a server"
    assert pair.override("clear", "--all", "--everywhere").returncode == 0
    assert (pair.overrides(second=False), pair.overrides(second=True)) == ([], [])


def test_a_peer_that_hangs_delays_no_answer_and_is_named(pair: TwoNameServers) -> None:
    pair.process.send_signal(signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        done = pair.override(*down(pair))
        assert done.returncode == 1
        assert "ns2: not done: no answer within 5 s" in done.stderr
        assert time.monotonic() - began_s < 20
        until(lambda: pair.chain.targets_at(OWNER) == LIVE - {LAST})
    finally:
        pair.process.send_signal(signal.SIGCONT)
    pair.override("clear", "--all", "--everywhere")
    until(lambda: pair.override("clear", "--all", "--everywhere").returncode == 0)


def test_a_certificate_of_another_authority_is_told(pair: TwoNameServers) -> None:
    right = pair.issuer.read_bytes()
    pair.issuer.write_bytes(authority(pair.chain.folder, "other").read_bytes())
    try:
        done = pair.override(*down(pair))
        assert done.returncode == 1
        assert "ns2: not done: " in done.stderr
        assert "certificate" in done.stderr
        assert pair.overrides(second=True) == []
    finally:
        pair.issuer.write_bytes(right)
    until(lambda: pair.override("clear", "--all", "--everywhere").returncode == 0, 30)


def test_a_wrong_token_and_a_refusal_there_are_told(pair: TwoNameServers) -> None:
    tokens = pair.chain.folder / "tokens"
    right = tokens.read_text()
    tokens.write_text("another-token-0123456789\n")
    try:
        done = pair.override(*down(pair))
        assert done.returncode == 1
        assert "ns2: not done: " in done.stderr
        assert "token" in done.stderr
    finally:
        tokens.write_text(right)
    assert pair.override("clear", "--all", "--everywhere").returncode == 0
    log = (pair.chain.folder / "second.log").read_text() + pair.chain.backend.log.read_text()
    assert TOKEN not in log
