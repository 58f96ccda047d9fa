"""A host with ppu-agent beside one with the whole chain: what tests of the client sidecar start from."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from daemon_kit.control import ControlError, request
from daemon_kit.sip import new_request, parse_response
from rspdns_lab.net.network import call_in

from tests.support.backend import ADDRESS, HANDLE
from tests.support.chain import SIP_PORTS, Chain
from tests.support.namespaces import Namespace
from tests.support.waiting import until

FRONT = "10.9.9.9"


class Client:
    """A host with ppu-agent and a program on it, beside one with all of the chain."""

    pools = 'affinity = "source"\n[gateway]\ninterfaces = ["eth0"]\n'
    """More keys of the pool, and more tables."""

    def __init__(self, chain: Chain, host: Namespace) -> None:
        self.chain = chain
        self.host = host
        there = chain.namespace
        there.ip("link", "add", "to-client", "type", "veth", "peer", "name", "eth0", "netns", host.name)
        for namespace, link, address in ((there, "to-client", "10.99.1.1"), (host, "eth0", "10.99.1.2")):
            namespace.ip("addr", "add", f"{address}/24", "dev", link)
            namespace.ip("link", "set", link, "up")
        host.ip("route", "add", "default", "via", "10.99.1.1")
        self.config = chain.folder / "ppu-agent.toml"
        self.config.write_text(
            f"registrars = {json.dumps(chain.registrars.addresses_with_enrp)}\n"
            f'[control]\npath = "{chain.folder}/ppu.sock"\n[state]\npath = "{chain.folder}/ppu-state"\n'
            f'[[pool]]\nhandle = "{HANDLE}"\naccept = ["{ADDRESS}/32"]\nsteer = "{FRONT}:5060"\n{self.pools}'
        )
        self.servers = {port: chain.start_sip(port) for port in SIP_PORTS}
        self.sidecar = self.start_sidecar()
        self.agent = self.start_agent()

    def start_sidecar(self) -> subprocess.Popen[str]:
        """Start the sidecar of all servers."""
        return self.chain.start_sidecar()

    def start_agent(self) -> subprocess.Popen[str]:
        """Start ppu-agent."""
        return self.host.start(
            *(sys.executable, "-m", "ppu_agent.cli", "run", "--log-json", "-c", str(self.config)),
            sctp=True,
            log=self.chain.folder / "ppu-agent.log",
        )

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Use the agent's control socket; empty while it does not answer."""
        try:
            return request(self.chain.folder / "ppu.sock", command, **arguments)
        except ControlError:
            return {}

    def treated(self) -> dict[int, str]:
        """The treatment of each port."""
        treated = self.ask("status").get("treated", [])
        return {int(server["endpoint"].rpartition(":")[2]): server["on_dead"] for server in treated}

    def connections(self, port: int) -> list[socket.socket]:
        """A connection of a program of the host to this port of the servers; none if that is refused."""

        def connect() -> list[socket.socket]:
            try:
                return [socket.create_connection((ADDRESS, port), 20.0)]
            except ConnectionRefusedError:
                return []

        found: list[socket.socket] = call_in(Path("/run/netns") / self.host.name, connect)
        return found

    def alive(self) -> set[int]:
        """The ports of the members that the agent believes to be in."""
        pools = self.ask("status").get("pool", [])
        return {
            int(endpoint.rpartition(":")[2])
            for pool in pools
            for each in pool["members"]
            for endpoint in each["endpoints"]
        }

    def departed(self) -> set[str]:
        """The states of those that left."""
        return {server["state"] for server in self.ask("status").get("departed", [])}

    def is_whole(self) -> bool:
        """Whether all live, by the word of settled registrars, and nothing is done."""
        standings = [registrar["standing"] for registrar in self.ask("status").get("registrars", [])]
        settled = standings == ["settled"] * 3
        return settled and self.alive() == set(SIP_PORTS) and not self.treated()

    def rules(self) -> str:
        """All nftables rules of the client's host."""
        return self.host.run("nft", "list", "ruleset").stdout

    def log(self) -> str:
        """The agent's log."""
        return (self.chain.folder / "ppu-agent.log").read_text()

    def options(self, port: int, timeout_s: float = 0.2, address: str = ADDRESS) -> bool:
        """Whether a program on this host gets an answer from there, as from there."""

        def ask() -> bool:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.connect((address, port))
                client.settimeout(timeout_s)
                question = new_request((address, port), client.getsockname()[:2], sender="test")
                try:
                    client.send(question.encode())
                    answer = parse_response(client.recv(4096))
                except OSError:
                    return False
                return answer is not None and question.is_answered_by(answer)

        asked: bool = call_in(Path("/run/netns") / self.host.name, ask)
        return asked

    def echoes(self, port: int, timeout_s: float = 0.2) -> bool:
        """Whether what a program on this host sends to this port of the servers comes back."""

        def ask() -> bool:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.settimeout(timeout_s)
                client.connect((ADDRESS, port))
                try:
                    client.send(b"ping")
                    return client.recv(100) == b"ping"
                except OSError:
                    return False

        asked: bool = call_in(Path("/run/netns") / self.host.name, ask)
        return asked

    def revive(self, port: int) -> None:
        """Start a server again, and wait until it is a member."""
        self.servers[port] = self.chain.start_sip(port)
        until(self.is_whole, told=self.log)
