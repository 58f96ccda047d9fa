"""`via = "sctp"`: what is sent to a pool's front reaches the servers embedded in SCTP, by real sidecars."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from rspdns_lab.net.network import call_in

from tests.ppu_agent.client_host import FRONT, Client
from tests.support.backend import ADDRESS, HANDLE
from tests.support.chain import SIP_PORTS, TCP_PORTS, Chain
from tests.support.namespaces import kill, own_namespace, program_of
from tests.support.sidecar import server_text
from tests.support.waiting import until

pytestmark = pytest.mark.integration
FIRST, SECOND = TCP_PORTS
MUCH = os.urandom(3_000_000)
"""More than the windows of a flow and the buffers of sockets have room for."""
ECHO = """
import socket, sys, threading
def serve(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(connection.getpeername()[0].encode() if data == b"who am I?" else data)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
"""A TCP server that sends back what it gets, and tells who asks for it where it comes from."""


GREEDY = """
import asyncio, sys
from rserpool import AssociationUp, DataChannels, DataMessage, DataMessageType
own, server, tcp_port, udp_port = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
async def run():
    up = asyncio.get_running_loop().create_future()
    def changed(notification):
        if isinstance(notification, AssociationUp):
            up.set_result(notification.association)
    channels = DataChannels(on_message=lambda *told: None, on_change=changed, local_addresses=[own])
    channels.endpoint.connect((server, 4630))
    association = await up
    for number in range(60):
        channels.begin(association, number)
        channels.send(association, DataMessage(DataMessageType.OPEN, number, tcp_port))
        channels.send(association, DataMessage(DataMessageType.DATAGRAM, number << 16, udp_port, b"x"))
        await asyncio.sleep(0.01)
    await asyncio.sleep(600)
asyncio.run(run())
"""
"""A host that the sidecar accepts, and that takes all it can get."""
GREEDY_ADDRESS = "10.99.2.77"
SHARE = 20


class ViaClient(Client):
    """All pools are reached over SCTP; two networks lie between the hosts."""

    pools = (
        f'via = "sctp"\n[[pool]]\nhandle = "sip-tcp"\naccept = ["{ADDRESS}/32"]\n'
        f'steer = "{FRONT}:5070"\nvia = "sctp"\n'
    )

    def __init__(self, chain: Chain, host: object) -> None:
        self.tcp: dict[int, subprocess.Popen[str]] = {}
        super().__init__(chain, host)  # type: ignore[arg-type]

    def start_sidecar(self) -> subprocess.Popen[str]:
        """Start the sidecar of all servers, which relays."""
        for port in TCP_PORTS:
            self.start_tcp(port)
        servers = [server_text(f"udp-{port}", HANDLE, "udp", port, "sip-options") for port in SIP_PORTS]
        servers += [server_text(f"tcp-{port}", "sip-tcp", "tcp", port, "tcp-hold") for port in TCP_PORTS]
        relayed = [server.replace("[[as.check]]", "relay = true\n[[as.check]]", 1) for server in servers]
        bounds = f"max_connections = {2 * SHARE}\nmax_clients = {2 * SHARE}\n"
        self.chain.sidecar.configure(f'[relay]\naccept = ["10.99.0.0/16"]\n{bounds}', *relayed)
        return self.chain.sidecar.start()

    def start_tcp(self, port: int) -> None:
        """Start an echo server."""
        self.tcp[port] = self.chain.namespace.start(sys.executable, "-c", ECHO, ADDRESS, str(port))

    def fronts(self) -> dict[str, int]:
        """How many servers each front has."""
        return {front["endpoint"]: len(front["to"]) for front in self.ask("status").get("steer", [])}

    def connect(self) -> socket.socket:
        """As a program on the client's host: to the front."""
        made: socket.socket = call_in(
            Path("/run/netns") / self.host.name, lambda: socket.create_connection((FRONT, 5070), 30)
        )
        return made

    def echoed(self, data: bytes) -> bytes:
        """The bytes that the front sends back for this; b"" when the connection breaks."""
        try:
            with self.connect() as connection:
                sender = threading.Thread(target=send_all, args=(connection, data))
                sender.start()
                got = bytearray()
                try:
                    while piece := connection.recv(65536):
                        got += piece
                finally:
                    sender.join()
                return bytes(got)
        except OSError:
            return b""


def send_all(connection: socket.socket, data: bytes) -> None:
    """Send this and nothing more."""
    try:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViaClient]:
    with own_namespace() as there, own_namespace() as host:
        # Before anything else: sctpd reads the interfaces once.
        there.ip("link", "add", "second", "type", "veth", "peer", "name", "second", "netns", host.name)
        there.route_clients()
        for namespace, address in ((there, "10.99.2.1"), (host, "10.99.2.2")):
            namespace.ip("addr", "add", f"{address}/24", "dev", "second")
            namespace.ip("link", "set", "second", "up")
        host.ip("addr", "add", f"{GREEDY_ADDRESS}/24", "dev", "second")
        yield ViaClient(Chain(there, tmp_path_factory.mktemp("via")), host)


@pytest.fixture
def whole(client: ViaClient) -> ViaClient:
    """All members live."""
    until(lambda: client.fronts() == {f"{FRONT}:5060": 3, f"{FRONT}:5070": 2}, told=client.log)
    return client


def test_datagrams_and_connections_reach_the_servers_embedded_in_sctp(whole: ViaClient) -> None:
    until(lambda: whole.options(5060, 2.0, FRONT), told=whole.log)
    assert whole.echoed(MUCH) == MUCH
    (via,) = whole.ask("status")["via"]
    assert via["up"]
    relay = whole.chain.sidecar.status()["relay"]
    assert relay["connections_count"] >= 1
    assert relay["datagrams_count"] >= 1
    # No server that trusts its own host takes a client for a program there.
    outside = ip_network("198.18.0.0/15")
    assert ip_address(whole.echoed(b"who am I?").decode()) in outside
    senders = whole.chain.namespace.run("ss", "--udp", "--all", "--numeric", "dst", ADDRESS).stdout
    sources = {line.split()[3].rpartition(":")[0] for line in senders.splitlines()[1:]}
    assert any(ip_address(source) in outside for source in sources), senders


def test_flow_survives_the_loss_of_one_of_two_networks(whole: ViaClient) -> None:
    assert whole.echoed(b"before") == b"before"
    with whole.connect() as connection:
        connection.settimeout(60)
        connection.sendall(b"one")
        assert connection.recv(100) == b"one"
        whole.chain.namespace.ip("link", "set", "to-client", "down")
        try:
            connection.sendall(b"two")
            assert connection.recv(100) == b"two"
        finally:
            whole.chain.namespace.ip("link", "set", "to-client", "up")
    until(lambda: whole.options(5060, 2.0, FRONT), told=whole.log)


def test_killed_server_is_left_and_its_connections_end(whole: ViaClient) -> None:
    connections = [whole.connect() for _ in range(12)]
    for connection in connections:
        connection.sendall(b"x")
        assert connection.recv(10) == b"x"
    kill(whole.tcp[FIRST])
    until(lambda: whole.fronts().get(f"{FRONT}:5070") == 1, told=whole.log)
    assert whole.echoed(b"more") == b"more"
    ended = 0
    for connection in connections:
        try:
            connection.sendall(b"y")
            ended += connection.recv(10) != b"y"
        except OSError:
            ended += 1
        connection.close()
    assert ended > 0
    whole.start_tcp(FIRST)


def test_killed_agent_leaves_direct_steering(whole: ViaClient) -> None:
    os.kill(program_of(whole.agent, "ppu_agent.cli run"), signal.SIGKILL)
    whole.agent.wait()
    try:
        until(lambda: whole.options(5060, 2.0, FRONT), told=whole.rules)
        assert whole.echoed(b"direct") == b"direct"
    finally:
        whole.agent = whole.start_agent()
    until(lambda: whole.options(5060, 2.0, FRONT), told=whole.log)


def test_agent_that_takes_all_it_can_leaves_the_others_their_part(whole: ViaClient) -> None:
    def relay() -> dict[str, int]:
        described: dict[str, int] = whole.chain.sidecar.status()["relay"]
        return described

    before = relay()
    ports = (str(FIRST), str(SIP_PORTS[0]))
    greedy = whole.host.start(sys.executable, "-c", GREEDY, GREEDY_ADDRESS, ADDRESS, *ports, sctp=True)
    until(lambda: relay()["refused_count"] - before["refused_count"] == 60 - SHARE, told=whole.log)
    during = relay()
    assert during["connections"] - before["connections"] <= SHARE
    assert during["senders"] - before["senders"] <= SHARE
    assert whole.echoed(b"a call") == b"a call"
    assert whole.options(5060, 5.0, FRONT)
    kill(greedy)
    until(lambda: relay()["connections"] == 0 and relay()["senders"] <= before["senders"] + 1)


def test_sidecar_takes_no_association_from_elsewhere(whole: ViaClient) -> None:
    """The last test: the sidecar is another one afterwards."""
    config = whole.chain.sidecar.config
    kill(whole.sidecar)
    config.write_text(config.read_text().replace("10.99.0.0/16", "10.98.0.0/16"))
    whole.sidecar = whole.chain.sidecar.start()
    whole.chain.sidecar.until(lambda status: asked(whole) and status["relay"]["refused_count"] > 0)
    assert not whole.options(5060, 1.0, FRONT)


def asked(whole: ViaClient) -> bool:
    """Ask the front something that is not answered."""
    return not whole.options(5060, 0.1, FRONT)
