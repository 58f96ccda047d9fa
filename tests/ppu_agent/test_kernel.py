"""The rules in a real kernel: what programs of this host get from a dead server's destination."""

import asyncio
import contextlib
import errno
import functools
import os
import select
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, TypeVar

import pytest
from daemon_kit.errors import FatalError
from ppu_agent.configuration import PpuConfig
from ppu_agent.destinations import AddressPort, Destination
from ppu_agent.drawing import Target, drawn_by_source
from ppu_agent.kernel import PacketCopies
from ppu_agent.kernel.flows import MOST_ONE_BY_ONE
from ppu_agent.mechanisms.ending import COPY_AGAIN_AFTER_S, Copied
from ppu_agent.plan import Front, OnDead, Plan, Treatment
from ppu_agent.rules import LEASE_S, PROBE_MARK
from rspdns_lab.net.network import call_in

from rserpool import Protocol
from tests.ppu_agent.kernel_side import KernelSide
from tests.ppu_agent.making import policy
from tests.ppu_agent.sip_messages import request, response
from tests.support.namespaces import Namespace
from tests.support.waiting import until

pytestmark = pytest.mark.integration
PORT = 5060
CLIENT, ALIVE, DEAD, FRONT = "10.99.7.1", "10.99.7.2", "10.99.7.3", "10.99.9.9"
V6 = {CLIENT: "fd99::1", ALIVE: "fd99::2", DEAD: "fd99::3", FRONT: "fd98::9"}
Found = TypeVar("Found")


@dataclass
class Stage:
    """Two hosts: the client's with the agent's rules, and one with the addresses of all servers."""

    namespace: Namespace
    servers: Namespace
    kernel: KernelSide
    cleanup: contextlib.ExitStack
    version: int = 4
    sockets: list[socket.socket] = field(default_factory=list)

    def inside(self, function: Callable[[], Found]) -> Found:
        return self.at_host(self.namespace, function)

    @staticmethod
    def at_host(host: Namespace, function: Callable[[], Found]) -> Found:
        found: Found = call_in(Path("/run/netns") / host.name, function)
        return found

    def open(
        self,
        kind: socket.SocketKind,
        bound_to: str | None = None,
        host: Namespace | None = None,
        protocol: int = 0,
    ) -> socket.socket:
        family = socket.AF_INET if self.version == 4 else socket.AF_INET6
        host = host or (self.namespace if bound_to in (CLIENT, None) else self.servers)
        made = self.at_host(host, lambda: socket.socket(family, kind, protocol))
        self.cleanup.callback(made.close)
        made.settimeout(10.0)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if bound_to is not None:
            made.bind((self.at(bound_to), PORT))
        return made

    def at(self, address: str) -> str:
        return address if self.version == 4 else V6[address]

    def destination(self, address: str, protocol: Protocol = Protocol.UDP) -> Destination:
        return Destination(ip_address(self.at(address)), protocol, PORT)

    def treat(
        self,
        action: OnDead,
        protocol: Protocol = Protocol.UDP,
        *,
        is_certain: bool = True,
    ) -> None:
        """Packets to DEAD are treated so; redirected ones go to ALIVE."""
        targets = (Target(self.destination(ALIVE, protocol), 1),) if action == "redirect" else ()
        treatment = Treatment(self.destination(DEAD, protocol), action, "p", "test", targets, is_certain)
        self.inside(lambda: self.kernel.write(Plan((treatment,)), None))
        assert self.kernel.writer.problem is None

    def ruleset(self) -> str:
        return self.namespace.run("nft", "list", "ruleset").stdout


@pytest.fixture(params=[4, 6])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with contextlib.ExitStack() as cleanup:
        name = f"rspdns-test-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        namespace, servers = (Namespace(f"{name}-{host}") for host in ("client", "servers"))
        for host in (namespace, servers):
            cleanup.callback(host.close)
        namespace.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", servers.name)
        for address, v6 in ((address, V6[address]) for address in (CLIENT, ALIVE, DEAD)):
            host = namespace if address == CLIENT else servers
            host.ip("addr", "add", f"{address}/24", "dev", "eth0")
            host.ip("-6", "addr", "add", f"{v6}/64", "dev", "eth0", "nodad")
        for host in (namespace, servers):
            host.ip("link", "set", "eth0", "up")
        namespace.ip("route", "add", "default", "dev", "eth0")
        namespace.ip("-6", "route", "add", "default", "dev", "eth0")
        stage = Stage(namespace, servers, KernelSide(), cleanup, version=request.param)
        stage.inside(stage.kernel.open)
        cleanup.callback(lambda: stage.inside(stage.kernel.close))
        yield stage


def answering(server: socket.socket, words: bytes) -> Callable[[], None]:
    """Answer one datagram with these words."""

    def answer() -> None:
        _, source = server.recvfrom(4096)
        server.sendto(words, source)

    return answer


def exchange(
    stage: Stage, client: socket.socket, to: str, server: socket.socket, words: bytes
) -> tuple[bytes, str]:
    """The client asks at `to`, `server` gets it and answers; return answer and source."""
    client.sendto(b"question", (stage.at(to), PORT))
    answering(server, words)()
    answer, source = client.recvfrom(4096)
    return answer, str(source[0])


def test_redirected_datagrams_reach_a_living_server_and_answers_come_as_from_the_first(stage: Stage) -> None:
    alive = stage.open(socket.SOCK_DGRAM, ALIVE)
    client = stage.open(socket.SOCK_DGRAM, CLIENT)
    assert exchange(stage, client, ALIVE, alive, b"itself") == (b"itself", stage.at(ALIVE))
    stage.treat("redirect")
    for _ in range(2):
        assert exchange(stage, client, DEAD, alive, b"for the dead") == (b"for the dead", stage.at(DEAD))
        assert exchange(stage, client, ALIVE, alive, b"itself") == (b"itself", stage.at(ALIVE))
        stage.treat("redirect")  # the renewal moves nobody


@pytest.mark.parametrize("action", ["redirect", "refuse"])
def test_flow_that_the_dead_server_began_is_treated_alike(stage: Stage, action: OnDead) -> None:
    """The host has a firewall, so conntrack is always at work; SIP servers send requests from their port."""
    firewall = (
        "table inet firewall { chain in { type filter hook input priority 0; ct state invalid drop; }; }"
    )
    subprocess.run(stage.namespace.command("nft", firewall), check=True)
    alive, dead = (stage.open(socket.SOCK_DGRAM, address) for address in (ALIVE, DEAD))
    client = stage.open(socket.SOCK_DGRAM, CLIENT)
    for server, words in ((dead, b"from the dead"), (alive, b"from the living")):
        server.sendto(words, (stage.at(CLIENT), PORT))
        assert client.recvfrom(100)[0] == words
    stage.treat(action)
    stage.inside(lambda: stage.kernel.ending.forget_begun_by([stage.destination(DEAD)]))
    assert stage.kernel.writer.problem is None
    if action == "refuse":
        with pytest.raises(PermissionError):
            client.sendto(b"question", (stage.at(DEAD), PORT))
    else:
        assert exchange(stage, client, DEAD, alive, b"for the dead") == (b"for the dead", stage.at(DEAD))


def test_flow_that_was_redirected_goes_to_the_first_server_again_when_it_is_back(stage: Stage) -> None:
    alive = stage.open(socket.SOCK_DGRAM, ALIVE)
    client = stage.open(socket.SOCK_DGRAM, CLIENT)
    stage.treat("redirect")
    exchange(stage, client, DEAD, alive, b"for the dead")
    back = stage.open(socket.SOCK_DGRAM, DEAD)
    stage.inside(lambda: stage.kernel.write(Plan()))
    assert exchange(stage, client, DEAD, back, b"back") == (b"back", stage.at(DEAD))
    assert "ppu_agent" not in stage.ruleset(), "while all live there is no table"


def test_rules_that_nobody_renews_end_by_themselves_also_for_busy_flows(stage: Stage) -> None:
    alive = stage.open(socket.SOCK_DGRAM, ALIVE)
    back = stage.open(socket.SOCK_DGRAM, DEAD)
    client = stage.open(socket.SOCK_DGRAM, CLIENT)
    stage.treat("redirect")
    exchange(stage, client, DEAD, alive, b"for the dead")
    back.setblocking(False)

    def arrives() -> bool:
        client.sendto(b"question", (stage.at(DEAD), PORT))
        try:
            return bool(back.recv(4096))
        except BlockingIOError:
            return False

    until(arrives, timeout_s=LEASE_S + 10, told=stage.ruleset, every_s=0.1)


def test_refused_connections_and_datagrams_fail_at_once_and_the_agents_probe_passes(stage: Stage) -> None:
    listener = stage.open(socket.SOCK_STREAM, DEAD)
    listener.listen()
    stage.treat("refuse", Protocol.TCP)
    with pytest.raises(ConnectionRefusedError):
        stage.open(socket.SOCK_STREAM).connect((stage.at(DEAD), PORT))
    probe = stage.open(socket.SOCK_STREAM)
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, PROBE_MARK)
    probe.connect((stage.at(DEAD), PORT))
    stage.treat("refuse")
    with pytest.raises(PermissionError):
        stage.open(socket.SOCK_DGRAM).sendto(b"question", (stage.at(DEAD), PORT))


@pytest.mark.parametrize("action", ["refuse", "redirect"])
def test_connection_that_is_up_goes_on_until_the_death_is_certain(stage: Stage, action: OnDead) -> None:
    client, server = connected(stage, DEAD, DEAD)
    stage.treat(action, Protocol.TCP, is_certain=False)
    assert_up(client, server)
    if action == "refuse":
        with pytest.raises(ConnectionRefusedError):
            stage.open(socket.SOCK_STREAM).connect((stage.at(DEAD), PORT))
    else:
        connected(stage, DEAD, ALIVE)
    assert_up(client, server)
    stage.treat(action, Protocol.TCP)
    with contextlib.suppress(ConnectionError):  # a late ACK may have been the first packet
        client.sendall(b"question")
    assert heard_by(client) == b"", "and it ended"


def test_sctp_association_that_is_up_goes_on_until_the_death_is_certain(stage: Stage) -> None:
    """By the packets alone: only an INIT is sent on to the closed port."""
    raw = stage.open(socket.SOCK_RAW, host=stage.servers, protocol=socket.IPPROTO_SCTP)
    own, to = stage.open(socket.SOCK_RAW, protocol=socket.IPPROTO_SCTP), (stage.at(DEAD), 0)
    data, init, heartbeat = 0, 1, 4

    def arrives(kind: int, within_s: float = 10.0) -> bool:
        chunk = bytes([kind, 0, 0, 20]) + bytes(16)
        head = PORT.to_bytes(2, "big") * 2 + (0 if kind == init else 7).to_bytes(4, "big")
        packet = head + bytes(4) + chunk
        own.sendto(head + crc32c(packet).to_bytes(4, "little") + chunk, to)
        raw.settimeout(within_s)
        with contextlib.suppress(TimeoutError):
            while data := raw.recv(4096):
                if data.endswith(chunk):
                    return True
        return False

    assert arrives(heartbeat)
    stage.treat("refuse", Protocol.SCTP, is_certain=False)
    assert arrives(heartbeat), "of an association that is up"
    assert not arrives(init, within_s=0.3)
    stage.treat("refuse", Protocol.SCTP)
    assert arrives(data), "which conntrack takes for invalid: docs/reference/ppu-agent.md says so"
    assert not arrives(heartbeat, within_s=0.3), "it is aborted"


@pytest.mark.parametrize("is_certain", [False, True])
def test_sctp_association_that_is_set_up_while_a_death_is_in_doubt_stays_with_its_server(
    stage: Stage, is_certain: bool
) -> None:
    """Also when the death is certain then, and when the first server is back. By the packets alone."""
    servers = {
        address: stage.open(socket.SOCK_RAW, address, protocol=socket.IPPROTO_SCTP)
        for address in (ALIVE, DEAD)
    }
    own = stage.open(socket.SOCK_RAW, protocol=socket.IPPROTO_SCTP)
    init, init_ack, heartbeat, cookie_echo, cookie_ack, data = 1, 2, 4, 10, 11, 0
    client_tag, server_tag = 5, 7

    def arrives_at(kind: int, port: int = PORT + 1) -> str | None:
        """The server at which a packet with a chunk of this type arrives; None: nowhere, or at no single
        server."""
        packet = sctp_packet(port, PORT, 0 if kind == init else server_tag, kind, client_tag)
        own.sendto(packet, (stage.at(DEAD), 0))
        select.select(list(servers.values()), [], [], 10.0)
        found = [address for address, server in servers.items() if gets(server, packet, 0.05)]
        return found[0] if len(found) == 1 else None

    def answer(kind: int) -> None:
        packet = sctp_packet(PORT, PORT + 1, client_tag, kind, server_tag)
        servers[ALIVE].sendto(packet, (stage.at(CLIENT), 0))
        assert gets(own, packet)

    stage.treat("redirect", Protocol.SCTP, is_certain=is_certain)
    for asked, answered in ((init, init_ack), (cookie_echo, cookie_ack)):
        assert arrives_at(asked) == ALIVE
        answer(answered)
    assert arrives_at(data) == ALIVE
    if not is_certain:
        assert arrives_at(heartbeat, PORT) == DEAD, "of an association that was up before"
    stage.treat("redirect", Protocol.SCTP)
    stage.inside(lambda: stage.kernel.ending.forget_begun_by([stage.destination(DEAD, Protocol.SCTP)]))
    assert arrives_at(data) == ALIVE, "it was redirected, and its server lives"
    assert arrives_at(heartbeat, PORT) == ALIVE, "which aborts it (RFC 9260, 8.4)"
    stage.inside(lambda: stage.kernel.write(Plan()))
    stage.inside(stage.kernel.redirect.find_connections)
    stage.inside(lambda: stage.kernel.write(Plan()))
    assert arrives_at(data) == ALIVE, "it stays when the first server is back"
    assert arrives_at(init, PORT + 2) == DEAD, "and new ones go to the first server"
    first, own_server = (stage.destination(address, Protocol.SCTP) for address in (DEAD, ALIVE))
    assert stage.inside(lambda: stage.kernel.ending.move_flows([first], [own_server])) == (2, 0)
    assert arrives_at(init) == DEAD, "when its own server dies, it may be set up anew"


def sctp_packet(source: int, destination: int, tag: int, kind: int, value: int) -> bytes:
    """A packet with the verification tag and one chunk, whose value begins with a number of 32 bits."""
    ports = source.to_bytes(2, "big") + destination.to_bytes(2, "big")
    flags = 3 if kind == 0 else 0  # a message of a single DATA chunk
    chunk = bytes([kind, flags, 0, 20]) + value.to_bytes(4, "big") + b"\0\0\xff\xff\0\1\0\1" + bytes(4)
    head = ports + tag.to_bytes(4, "big")
    return head + crc32c(head + bytes(4) + chunk).to_bytes(4, "little") + chunk


def gets(raw: socket.socket, packet: bytes, within_s: float = 10.0) -> bool:
    raw.settimeout(within_s)
    with contextlib.suppress(TimeoutError):
        while got := raw.recv(4096):
            if got.endswith(packet[12:]) and got[-len(packet) :][:8] == packet[:8]:
                return True
    return False


def crc32c(data: bytes) -> int:
    """SCTP's checksum (RFC 9260, appendix A)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_refused_sctp_associations_are_aborted_at_once(stage: Stage) -> None:
    stage.treat("refuse", Protocol.SCTP)
    program = (
        "import socket, sys\n"
        "family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET\n"
        "with socket.socket(family, socket.SOCK_STREAM, 132) as client:\n"
        "    client.settimeout(5)\n"
        "    print(client.connect_ex((sys.argv[1], int(sys.argv[2]))))\n"
    )
    # The lease is renewed meanwhile: sctp-run may take longer to start than it lasts.
    for _ in range(5):
        stage.treat("refuse", Protocol.SCTP)
        said = stage.namespace.run(sys.executable, "-c", program, stage.at(DEAD), str(PORT), sctp=True)
        if said.stdout.strip() == str(errno.ECONNREFUSED):
            return
    pytest.fail(said.stdout + said.stderr)


def test_connections_to_the_dead_are_ended_and_others_stay(stage: Stage) -> None:
    listeners = {address: stage.open(socket.SOCK_STREAM, address) for address in (ALIVE, DEAD)}
    clients = {}
    for address, listener in listeners.items():
        listener.listen()
        clients[address] = stage.open(socket.SOCK_STREAM)
        clients[address].connect((stage.at(address), PORT))
        accepted, _ = listener.accept()
        stage.cleanup.callback(accepted.close)
    destination = stage.destination(DEAD, Protocol.TCP)
    assert stage.inside(lambda: stage.kernel.ending.end_connections([destination])) == 1
    with pytest.raises(OSError) as ended:
        clients[DEAD].recv(1)
    assert ended.value.errno in (errno.ECONNABORTED, errno.ECONNRESET)
    clients[ALIVE].sendall(b"still there")
    assert stage.inside(lambda: stage.kernel.ending.end_connections([destination])) == 0


@pytest.mark.parametrize("stage", [4], indirect=True)
def test_connections_of_programs_with_one_socket_for_both_versions_are_ended(stage: Stage) -> None:
    listener = stage.open(socket.SOCK_STREAM, DEAD)
    listener.listen()
    alive, dead = (stage.destination(address, Protocol.TCP) for address in (ALIVE, DEAD))
    with stage.inside(lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM)) as client:
        client.settimeout(10.0)
        client.connect((f"::ffff:{DEAD}", PORT))
        assert stage.inside(lambda: stage.kernel.ending.end_connections([alive])) == 0
        assert stage.inside(lambda: stage.kernel.ending.end_connections([alive, dead])) == 1
        with pytest.raises(ConnectionAbortedError):
            client.recv(1)


def test_packets_to_this_host_itself_pass(stage: Stage) -> None:
    here = stage.open(socket.SOCK_STREAM, CLIENT)
    here.listen()
    destination = stage.destination(CLIENT, Protocol.TCP)
    stage.inside(lambda: stage.kernel.write(Plan((Treatment(destination, "refuse", "p", "test"),))))
    assert stage.kernel.writer.problem is None
    stage.open(socket.SOCK_STREAM).connect((stage.at(CLIENT), PORT))


def test_table_that_somebody_else_removes_is_put_again(stage: Stage) -> None:
    stage.treat("refuse")
    before = stage.ruleset()
    for command in (("flush", "ruleset"), ("flush", "table", "inet", "ppu_agent")):
        subprocess.run(stage.namespace.command("nft", *command), check=True)
        stage.treat("refuse")
        assert stage.ruleset().count("@refused") == before.count("@refused") > 0


def test_rules_of_an_agent_that_was_killed_go_when_the_next_one_starts(stage: Stage) -> None:
    stage.treat("refuse")
    stage.inside(KernelSide().open)
    assert "ppu_agent" not in stage.ruleset()


def test_program_with_a_port_that_a_probe_had_is_redirected_alike(stage: Stage) -> None:
    """Conntrack remembers for two minutes a probe that a silent server left unanswered."""
    listener = stage.open(socket.SOCK_STREAM, ALIVE)
    listener.listen()
    stage.treat("redirect", Protocol.TCP)
    silent = {4: "10.99.7.5", 6: "fd99::5"}[stage.version]
    target = Target(stage.destination(ALIVE, Protocol.TCP), 1)
    asked = Destination(ip_address(silent), Protocol.TCP, PORT)
    stage.inside(lambda: stage.kernel.write(Plan((Treatment(asked, "redirect", "p", "test", (target,)),))))
    neighbour = ("neigh", "replace", silent, "lladdr", "02:00:00:00:00:09", "dev", "eth0")
    stage.namespace.ip(*neighbour)
    probe = stage.open(socket.SOCK_STREAM)
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, PROBE_MARK)
    probe.bind((stage.at(CLIENT), 0))
    port = probe.getsockname()[1]
    probe.setblocking(False)
    assert probe.connect_ex((silent, PORT)) == errno.EINPROGRESS
    probe.close()
    client = stage.open(socket.SOCK_STREAM)
    client.bind((stage.at(CLIENT), port))
    client.connect((silent, PORT))
    accepted, _ = listener.accept()
    stage.cleanup.callback(accepted.close)
    assert_up(client, accepted)


THIRD = "10.99.7.4"
V6[THIRD] = "fd99::4"


def redirected(stage: Stage, *, host: Namespace | None = None) -> tuple[socket.socket, socket.socket]:
    """A connection to DEAD that ALIVE has; DEAD listens as well."""
    listener = stage.open(socket.SOCK_STREAM, ALIVE)
    listener.listen()
    stage.open(socket.SOCK_STREAM, DEAD).listen()
    stage.treat("redirect", Protocol.TCP)
    client = stage.open(socket.SOCK_STREAM, host=host)
    client.connect((stage.at(DEAD), PORT))
    server, _ = listener.accept()
    stage.cleanup.callback(server.close)
    server.settimeout(10.0)
    assert_up(client, server)
    return client, server


def assert_up(client: socket.socket, server: socket.socket) -> None:
    client.sendall(b"question")
    assert server.recv(100) == b"question"
    server.sendall(b"answer")
    assert client.recv(100) == b"answer"


def test_redirected_connection_goes_on_when_the_first_server_is_back(stage: Stage) -> None:
    client, server = redirected(stage)
    stage.inside(lambda: stage.kernel.write(Plan()))
    assert_up(client, server)
    assert "@refused" not in stage.ruleset()
    stage.open(socket.SOCK_STREAM).connect((stage.at(DEAD), PORT))
    assert_up(client, server)
    stage.treat("redirect", Protocol.TCP)
    dead = stage.destination(DEAD, Protocol.TCP)
    assert stage.inside(lambda: stage.kernel.ending.end_connections([dead])) == 1, (
        "the new one; the other has a server"
    )
    assert_up(client, server)


def test_redirected_connection_goes_on_when_another_server_dies_and_ends_with_its_own(stage: Stage) -> None:
    client, server = redirected(stage)
    asked = [stage.destination(address, Protocol.TCP) for address in (DEAD, ALIVE, THIRD)]
    targets = (Target(asked[1], 1),)
    treatments = tuple(
        Treatment(destination, "redirect", "p", "test", targets) for destination in (asked[0], asked[2])
    )
    stage.inside(lambda: stage.kernel.write(Plan(treatments)))
    assert stage.inside(lambda: stage.kernel.ending.move_flows(asked, [asked[2]])) == (0, 0)
    assert_up(client, server)
    treatments = tuple(
        Treatment(destination, "redirect", "p", "test", (Target(asked[2], 1),)) for destination in asked[:2]
    )
    stage.inside(lambda: stage.kernel.write(Plan(treatments)))
    moved, _ = stage.inside(lambda: stage.kernel.ending.move_flows(asked, [asked[1]]))
    assert moved == 1
    with pytest.raises((ConnectionAbortedError, ConnectionResetError)):  # reset, if a late ACK was sooner
        client.recv(1)


def test_redirected_connection_survives_a_flush_of_all_rules(stage: Stage) -> None:
    """Debian's `systemctl reload nftables` begins with that. The rules may come back a second later."""
    stage.inside(stage.kernel.close)
    stage.kernel = KernelSide()
    stage.inside(lambda: stage.kernel.open(is_alone=True))
    client, server = redirected(stage)
    for _ in range(2):
        subprocess.run(stage.namespace.command("nft", "flush", "ruleset"), check=True)
        assert_up(client, server)
        stage.treat("redirect", Protocol.TCP)
        assert_up(client, server)
    stage.inside(lambda: stage.kernel.write(Plan()))
    subprocess.run(stage.namespace.command("nft", "flush", "ruleset"), check=True)
    assert_up(client, server)


@pytest.mark.parametrize("is_killed", [True, False])
def test_redirected_connection_outlives_the_agent_and_is_kept_by_the_next_agent(
    stage: Stage, is_killed: bool
) -> None:
    client, server = redirected(stage)
    if not is_killed:
        stage.inside(stage.kernel.close)
        assert_up(client, server)
        assert "@refused" not in stage.ruleset()
    following = KernelSide()
    stage.inside(following.open)
    assert_up(client, server)
    assert "@refused" not in stage.ruleset()
    client.close()
    server.close()
    until(lambda: "ESTABLISHED" not in stage.namespace.run("ss", "-tan").stdout, told=stage.ruleset)
    stage.inside(following.close)
    assert "ppu_agent" not in stage.ruleset(), "nothing is left that needs it"


def test_second_agent_on_a_host_is_told_and_touches_no_rule(stage: Stage) -> None:
    first = KernelSide()
    stage.inside(lambda: first.open(is_alone=True))
    stage.treat("refuse")
    with pytest.raises(FatalError, match="another ppu-agent runs on this host"):
        stage.inside(lambda: KernelSide().open(is_alone=True))
    assert "@refused" in stage.ruleset()
    stage.inside(first.close)
    third = KernelSide()
    stage.inside(lambda: third.open(is_alone=True))
    stage.inside(third.close)


BEHIND = {4: ("10.99.6.1", "10.99.6.2", 24), 6: ("fd96::1", "fd96::2", 64)}


@pytest.fixture
def behind(stage: Stage) -> Namespace:
    """A host whose way to the servers leads through the agent's host."""
    router, (gateway, own, bits) = stage.namespace, BEHIND[stage.version]
    host = Namespace(router.name.replace("client", "behind"))
    stage.cleanup.callback(host.close)
    router.ip("link", "add", "eth1", "type", "veth", "peer", "name", "eth0", "netns", host.name)
    for namespace, link, address in ((router, "eth1", gateway), (host, "eth0", own)):
        more = ["nodad"] if stage.version == 6 else []
        namespace.ip("addr", "add", f"{address}/{bits}", "dev", link, *more)
        namespace.ip("link", "set", link, "up")
    host.ip("route", "add", "default", "via", gateway)
    stage.servers.ip("route", "add", f"{own}/{8 * len(ip_address(own).packed)}", "via", stage.at(CLIENT))
    forwarding = {4: "net.ipv4.ip_forward", 6: "net.ipv6.conf.all.forwarding"}[stage.version]
    assert router.run("sysctl", "-w", f"{forwarding}=1").returncode == 0
    return host


def test_packets_of_hosts_behind_this_one_are_redirected_and_refused(stage: Stage, behind: Namespace) -> None:
    alive = stage.open(socket.SOCK_DGRAM, ALIVE)
    client = stage.open(socket.SOCK_DGRAM, host=behind)
    stage.treat("redirect")
    assert exchange(stage, client, DEAD, alive, b"for the dead") == (b"for the dead", stage.at(DEAD))
    stage.open(socket.SOCK_STREAM, DEAD).listen()
    stage.treat("refuse", Protocol.TCP)
    with pytest.raises(ConnectionRefusedError):
        stage.open(socket.SOCK_STREAM, host=behind).connect((stage.at(DEAD), PORT))
    stage.inside(lambda: stage.kernel.write(Plan()))
    stage.open(socket.SOCK_STREAM, host=behind).connect((stage.at(DEAD), PORT))


def test_connections_of_hosts_behind_this_one_are_kept_and_reset_alike(
    stage: Stage, behind: Namespace
) -> None:
    with_dead = stage.open(socket.SOCK_STREAM, DEAD)
    with_dead.listen()
    before = stage.open(socket.SOCK_STREAM, host=behind)
    before.connect((stage.at(DEAD), PORT))
    accepted, _ = with_dead.accept()
    stage.cleanup.callback(accepted.close)
    with_dead.close()
    client, server = redirected(stage, host=behind)
    before.sendall(b"question")
    with pytest.raises(ConnectionResetError):
        before.recv(100)
    assert_up(client, server)
    stage.inside(lambda: stage.kernel.write(Plan()))
    assert_up(client, server)


def test_clients_behind_this_host_reach_a_server_by_the_front(stage: Stage, behind: Namespace) -> None:
    alive = stage.open(socket.SOCK_DGRAM, ALIVE)
    client = stage.open(socket.SOCK_DGRAM, host=behind)
    stage.inside(lambda: stage.kernel.write(front(stage, ALIVE, by_source=True)))
    assert exchange(stage, client, FRONT, alive, b"here") == (b"here", stage.at(FRONT))


def front(stage: Stage, *servers: str, by_source: bool, protocol: Protocol = Protocol.UDP) -> Plan:
    """The address FRONT stands for these servers."""
    targets = tuple(Target(stage.destination(server, protocol), 1) for server in servers)
    return Plan(
        fronts=(Front(stage.destination(FRONT, protocol), replace(policy(), by_source=by_source), targets),)
    )


@pytest.mark.parametrize("by_source", [False, True])
def test_flows_to_a_front_stay_at_their_server_until_it_dies(stage: Stage, by_source: bool) -> None:
    servers = {server: stage.open(socket.SOCK_DGRAM, server) for server in (ALIVE, DEAD)}
    client = stage.open(socket.SOCK_DGRAM, CLIENT)
    stage.inside(lambda: stage.kernel.write(front(stage, DEAD, by_source=by_source)))
    assert exchange(stage, client, FRONT, servers[DEAD], b"one") == (b"one", stage.at(FRONT))
    stage.inside(lambda: stage.kernel.write(front(stage, ALIVE, by_source=by_source)))
    assert exchange(stage, client, FRONT, servers[DEAD], b"two") == (b"two", stage.at(FRONT))
    moving = ([stage.destination(FRONT)], [stage.destination(DEAD)])
    assert stage.inside(lambda: stage.kernel.ending.move_flows(*moving)) == (1, 0)
    assert stage.kernel.writer.problem is None
    assert exchange(stage, client, FRONT, servers[ALIVE], b"three") == (b"three", stage.at(FRONT))


def test_kernel_and_agent_choose_the_same_server_for_a_clients_address(stage: Stage) -> None:
    """The agent relays part of the flows to a front, and the kernel sends on the others."""
    servers = {server: stage.open(socket.SOCK_DGRAM, server) for server in (ALIVE, DEAD)}
    fronting = front(stage, *servers, by_source=True)
    stage.inside(lambda: stage.kernel.write(fronting))
    chosen = []
    for number in range(16):
        own = ip_address(stage.at(CLIENT)) + 100 + number
        at_once = ["nodad"] if own.version == 6 else []
        stage.namespace.ip("addr", "add", f"{own}/{own.max_prefixlen}", "dev", "eth0", *at_once)
        client = stage.open(socket.SOCK_DGRAM)
        client.bind((str(own), PORT))
        expected = drawn_by_source(fronting.fronts[0].targets, own)
        assert expected is not None
        name = next(address for address in servers if stage.at(address) == str(expected.address))
        assert exchange(stage, client, FRONT, servers[name], b"here") == (b"here", stage.at(FRONT))
        chosen.append(name)
    assert set(chosen) == set(servers), "both have clients"


def test_connections_by_a_front_reach_a_server_and_are_reset_when_it_dies(stage: Stage) -> None:
    accepted = {}
    for server in (DEAD, ALIVE):
        listener = stage.open(socket.SOCK_STREAM, server)
        listener.listen()
        accepted[server] = listener
    stage.inside(lambda: stage.kernel.write(front(stage, DEAD, by_source=False, protocol=Protocol.TCP)))
    client = stage.open(socket.SOCK_STREAM)
    client.connect((stage.at(FRONT), PORT))
    connection, _ = accepted[DEAD].accept()
    with connection:
        client.sendall(b"question")
        assert connection.recv(100) == b"question"
        stage.inside(lambda: stage.kernel.write(front(stage, ALIVE, by_source=False, protocol=Protocol.TCP)))
        moving = ([stage.destination(FRONT, Protocol.TCP)], [stage.destination(DEAD, Protocol.TCP)])
        assert stage.inside(lambda: stage.kernel.ending.move_flows(*moving)) == (1, 1)
        with pytest.raises(ConnectionAbortedError):
            client.recv(100)


def test_front_outlives_an_agent_that_was_killed_and_is_kept_by_the_next_agent(stage: Stage) -> None:
    server, client = stage.open(socket.SOCK_DGRAM, ALIVE), stage.open(socket.SOCK_DGRAM, CLIENT)
    stage.inside(lambda: stage.kernel.write(front(stage, ALIVE, by_source=True)))
    following = KernelSide()
    stage.inside(lambda: following.open(is_kept=True))
    stage.inside(lambda: following.write(Plan()))
    assert exchange(stage, client, FRONT, server, b"still") == (b"still", stage.at(FRONT))
    stage.inside(following.close)
    assert "ppu_agent" not in stage.ruleset()


def test_request_to_the_dead_is_answered_with_503_and_strangers_get_nothing(stage: Stage) -> None:
    """A call under way would end if its retransmission could not be sent: SIP is never refused that way."""
    client = stage.open(socket.SOCK_DGRAM, CLIENT)
    client.setblocking(False)
    request = (
        b"INVITE sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP h:5060;branch=z9hG4bKx;rport\r\n"
        b"From: <sip:c@d>;tag=1\r\nTo: <sip:a@b>\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\n\r\n"
    )

    async def scenario() -> tuple[list[tuple[bytes, Any]], list[int]]:
        responder = stage.kernel.answer
        await responder.configure(PpuConfig.model_construct(registrars=(), pools=()))
        loop = asyncio.get_running_loop()
        to_responder = (stage.at(CLIENT), responder.port)
        client.sendto(request, to_responder)
        await asyncio.sleep(0.1)
        answered = [responder.answered]
        treatment = Treatment(stage.destination(DEAD), "refuse", "p", "test")
        stage.kernel.write(Plan((treatment,)))
        assert stage.kernel.writer.problem is None
        got = []
        for _ in range(2):
            with pytest.raises(PermissionError):
                stage.open(socket.SOCK_DGRAM).sendto(b"no SIP", (stage.at(DEAD), PORT))
            stage.kernel.write(Plan((treatment,)))
            client.sendto(request, (stage.at(DEAD), PORT))
            async with asyncio.timeout(10):
                got.append(await loop.sock_recvfrom(client, 4096))
            client.sendto(request.replace(b"INVITE", b"ACK"), (stage.at(DEAD), PORT))
        client.sendto(request, to_responder)
        await asyncio.sleep(0.1)
        answered.append(responder.answered)
        await responder.close()
        return got, answered

    got, answered = stage.inside(lambda: asyncio.run(scenario()))
    assert all(answer.startswith(b"SIP/2.0 503 Service Unavailable\r\n") for answer, _ in got)
    assert {source[:2] for _, source in got} == {(stage.at(DEAD), PORT)}
    assert answered == [0, 2], "only what was redirected is answered"


def test_client_socket_goes_on_by_the_front_and_directly_when_its_server_died(stage: Stage) -> None:
    """A SIP proxy sends all from one socket: calls to the front, what follows to the server's own address."""
    client = stage.open(socket.SOCK_DGRAM, CLIENT)
    dead, alive = (stage.open(socket.SOCK_DGRAM, address) for address in (DEAD, ALIVE))
    stage.inside(lambda: stage.kernel.write(front(stage, DEAD, by_source=False)))
    assert exchange(stage, client, FRONT, dead, b"by the front") == (b"by the front", stage.at(FRONT))
    assert exchange(stage, client, DEAD, dead, b"directly") == (b"directly", stage.at(DEAD))
    target = Target(stage.destination(ALIVE), 1)
    treated = Treatment(stage.destination(DEAD), "redirect", "p", "test", (target,))
    steering = replace(front(stage, ALIVE, by_source=False), treatments=(treated,))

    async def in_the_loop() -> tuple[int, int]:
        stage.kernel.write(steering)
        return stage.kernel.ending.move_flows([stage.destination(FRONT)], [stage.destination(DEAD)])

    assert stage.inside(lambda: asyncio.run(in_the_loop())) == (1, 0)
    for number, to in enumerate((DEAD, FRONT, ALIVE) * 2):
        words = b"%d" % number
        assert exchange(stage, client, to, alive, words) == (words, stage.at(to))


def test_started_again_the_agent_moves_flows_that_the_one_before_had_moved(stage: Stage) -> None:
    """A proxy's one flow is always busy: conntrack would go on sending it where the agent before did."""
    client = stage.open(socket.SOCK_DGRAM, CLIENT)
    treatment = Treatment(stage.destination(DEAD), "refuse", "p", "test")
    for words in (b"INVITE first", b"INVITE second"):
        responder = stage.open(socket.SOCK_DGRAM)
        responder.bind(("", 0))
        port = responder.getsockname()[1]
        stage.inside(functools.partial(stage.kernel.write, Plan((treatment,)), port))
        client.sendto(words, (stage.at(DEAD), PORT))
        assert responder.recv(99) == words
        stage.inside(stage.kernel.close)
        stage.kernel = KernelSide()
        stage.inside(stage.kernel.open)


@pytest.mark.parametrize("number", [1, MOST_ONE_BY_ONE + 20])
def test_connections_that_the_relay_has_not_accepted_yet_stay(stage: Stage, number: int) -> None:
    """They are this host's connections to the dead server's address like those that end."""
    relay = stage.open(socket.SOCK_STREAM)
    relay.bind(("", 0))
    relay.listen(number)
    dead = stage.destination(DEAD, Protocol.TCP)
    clients = [stage.open(socket.SOCK_STREAM) for _ in range(number)]
    stage.inside(lambda: stage.kernel.relay([dead], relay.getsockname()[1]))
    for client in clients:
        client.connect((stage.at(DEAD), PORT))
    assert stage.inside(lambda: stage.kernel.ending.end_connections([dead])) == 0
    ports = {client.getsockname()[1]: client for client in clients}
    for _ in clients:
        connection, address = relay.accept()
        with connection:
            connection.sendall(b"by the relay")
            assert ports[address[1]].recv(99) == b"by the relay"


def test_connections_that_have_ended_cost_nothing_when_their_server_dies(stage: Stage) -> None:
    """Conntrack keeps each for two minutes. To read them all held the relay up for seconds."""
    relay = stage.open(socket.SOCK_STREAM)
    relay.bind(("", 0))
    relay.listen()
    dead = stage.destination(DEAD, Protocol.TCP)
    stage.inside(lambda: stage.kernel.relay([dead], relay.getsockname()[1]))
    client = stage.open(socket.SOCK_STREAM)
    client.connect((stage.at(DEAD), PORT))

    def spent_s() -> float:
        began_s = time.process_time()
        assert stage.inside(lambda: stage.kernel.ending.end_connections([dead])) == 0
        return time.process_time() - began_s

    before_s = min(spent_s() for _ in range(3))
    for _ in range(1500):
        with stage.inside(lambda: socket.create_connection((stage.at(DEAD), PORT), 10.0)):
            relay.accept()[0].close()
    assert min(spent_s() for _ in range(3)) < 3 * before_s + 0.02


def test_connections_are_ended_from_the_agents_event_loop(stage: Stage) -> None:
    listener = stage.open(socket.SOCK_STREAM, DEAD)
    listener.listen()
    client = stage.open(socket.SOCK_STREAM)
    client.connect((stage.at(DEAD), PORT))
    connection, _ = listener.accept()

    async def in_the_loop() -> int:
        return stage.kernel.ending.end_connections([stage.destination(DEAD, Protocol.TCP)])

    with connection:
        assert stage.inside(lambda: asyncio.run(in_the_loop())) == 1
        with pytest.raises(ConnectionAbortedError):
            client.recv(1)


NETWORKS = {4: "10.99.0.0/16", 6: "fd98::/15"}


def overhear(stage: Stage, left_alone: frozenset[AddressPort] = frozenset()) -> None:
    """Requests over TCP are known."""
    wanted = Copied(frozenset({ip_network(NETWORKS[stage.version])}), frozenset({PORT}), left_alone)
    stage.inside(lambda: stage.kernel.copy(wanted, time.monotonic()))
    assert stage.kernel.ending.copies.problem is None


def connected(
    stage: Stage, to: str, listens: str, host: Namespace | None = None
) -> tuple[socket.socket, socket.socket]:
    listener = stage.open(socket.SOCK_STREAM, listens)
    listener.listen()
    client = stage.open(socket.SOCK_STREAM, host=host)
    client.connect((stage.at(to), PORT))
    server, _ = listener.accept()
    stage.cleanup.callback(server.close)
    server.settimeout(10.0)
    return client, server


def heard_by(client: socket.socket) -> bytes:
    """All that the client hears until its connection ends."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := client.recv(65536):
            found += data
    return found


def test_requests_that_a_dead_server_left_are_answered_before_their_connection_ends(stage: Stage) -> None:
    """It had answered one, had half of another, and its host goes on to acknowledge what comes."""
    overhear(stage)
    client, server = connected(stage, DEAD, DEAD)
    client.sendall(request("one"))
    assert server.recv(4096) == request("one")
    server.sendall(response(200, "one"))
    assert client.recv(4096) == response(200, "one")
    client.sendall(request("two", body="v=0") + request("three")[:40])
    client.sendall(request("three")[40:] + request("four", "OPTIONS") + request("half")[:60])
    dead = [stage.destination(DEAD, Protocol.TCP)]
    stage.kernel.passing = dead
    stage.treat("refuse", Protocol.TCP)
    assert stage.inside(lambda: stage.kernel.ending.end_connections(dead)) == 1
    heard = heard_by(client)
    assert heard.count(b"SIP/2.0 503 Service Unavailable\r\n") == 3
    assert [branch in heard for branch in (b"one", b"two", b"three", b"four", b"half")] == [
        *(False, True, True, True, False)
    ]
    assert stage.kernel.ending.refused_requests == 3


def test_nothing_is_said_for_a_server_that_speaks_no_sip(stage: Stage) -> None:
    dead = stage.destination(DEAD, Protocol.TCP)
    overhear(stage, frozenset({dead.endpoint}))
    client, server = connected(stage, DEAD, DEAD)
    client.sendall(request("one"))
    assert server.recv(4096) == request("one")
    assert stage.inside(lambda: stage.kernel.ending.end_connections([dead])) == 1
    assert heard_by(client) == b""
    assert stage.kernel.ending.refused_requests == 0


def test_what_the_kernel_refuses_to_copy_is_asked_for_again_later(stage: Stage) -> None:
    wanted = Copied(frozenset({ip_network(NETWORKS[stage.version])}), frozenset({PORT}))
    other = PacketCopies()
    stage.cleanup.callback(other.close)
    stage.inside(other.open)
    stage.inside(lambda: stage.kernel.copy(wanted, 0.0))
    assert "another program takes the packets" in str(stage.kernel.ending.copies.problem)
    other.close()
    stage.inside(lambda: stage.kernel.copy(wanted, COPY_AGAIN_AFTER_S - 1.0))
    assert not stage.kernel.ending.copies.is_open
    stage.inside(lambda: stage.kernel.copy(wanted, COPY_AGAIN_AFTER_S))
    assert stage.kernel.ending.copies.is_open
    assert stage.kernel.ending.copies.problem is None


def test_connections_without_a_request_that_waits_end_as_ever(stage: Stage) -> None:
    overhear(stage)
    client, server = connected(stage, DEAD, DEAD)
    client.sendall(request("one"))
    server.sendall(response(200, "one"))
    assert client.recv(4096) == response(200, "one")
    assert (
        stage.inside(lambda: stage.kernel.ending.end_connections([stage.destination(DEAD, Protocol.TCP)]))
        == 1
    )
    assert heard_by(client) == b""


@pytest.mark.parametrize("is_forwarded", [False, True])
@pytest.mark.parametrize(("before", "number"), [(b"", 10), (b"\r\n\r\n", 1)])
def test_requests_into_a_cut_link_are_answered_and_their_repetitions_end_nothing_before(
    stage: Stage, behind: Namespace, is_forwarded: bool, before: bytes, number: int
) -> None:
    """Also a request that TCP holds back until a keep-alive `before` it is acknowledged."""
    stage.servers.run("sysctl", "-w", "net.ipv4.tcp_window_scaling=0")  # as SIPp's small buffers have it
    overhear(stage)
    client, server = connected(stage, DEAD, DEAD, host=behind if is_forwarded else None)
    client.sendall(request("one"))
    assert server.recv(4096) == request("one")
    server.sendall(response(200, "one"))
    assert client.recv(4096) == response(200, "one")
    deaf = (
        "table inet deaf { chain in { type filter hook prerouting priority -310; meta l4proto tcp drop; }; }"
    )
    subprocess.run(stage.servers.command("nft", deaf), check=True)
    client.sendall(before)
    branches = [f"cut{branch}" for branch in range(number)]
    for branch in branches:
        client.sendall(request(branch))
        time.sleep(0.1)  # TCP repeats the first, and holds back most of the others
    dead = [stage.destination(DEAD, Protocol.TCP)]
    stage.kernel.passing = dead
    stage.treat("refuse", Protocol.TCP)
    time.sleep(0.3)
    stage.inside(lambda: stage.kernel.ending.end_connections(dead))
    stage.kernel.passing = ()
    heard = heard_by(client)
    assert [heard.count(f"=z9hG4bK{branch};".encode()) for branch in branches] == [1] * number


def test_request_in_a_redirected_connection_is_answered_when_its_server_dies(stage: Stage) -> None:
    overhear(stage)
    client, server = redirected(stage)
    client.sendall(request("one"))
    assert server.recv(4096) == request("one")
    asked = [stage.destination(address, Protocol.TCP) for address in (DEAD, ALIVE, THIRD)]
    treatments = tuple(
        Treatment(destination, "redirect", "p", "test", (Target(asked[2], 1),)) for destination in asked[:2]
    )
    stage.kernel.passing = [asked[1]]
    stage.inside(lambda: stage.kernel.write(Plan(treatments)))
    assert stage.inside(lambda: stage.kernel.ending.end_connections([asked[1]])) == 0
    moved, _ = stage.inside(lambda: stage.kernel.ending.move_flows(asked, [asked[1]]))
    assert moved == 1
    assert heard_by(client).startswith(b"SIP/2.0 503 Service Unavailable\r\n")


def test_many_requests_of_many_connections_are_all_answered(stage: Stage) -> None:
    overhear(stage)
    pairs = [connected_again(stage, listener) for listener in [listening(stage)] for _ in range(20)]
    for number, (client, _) in enumerate(pairs):
        for each in range(50):
            client.sendall(request(f"c{number}-{each}", body="v=0\r\n" * 100))
    dead = [stage.destination(DEAD, Protocol.TCP)]
    stage.kernel.passing = dead
    stage.treat("refuse", Protocol.TCP)
    assert stage.inside(lambda: stage.kernel.ending.end_connections(dead)) == 20
    for number, (client, _) in enumerate(pairs):
        heard = heard_by(client)
        assert [f"=z9hG4bKc{number}-{each};".encode() in heard for each in range(50)] == [True] * 50


def listening(stage: Stage) -> socket.socket:
    listener = stage.open(socket.SOCK_STREAM, DEAD)
    listener.listen()
    return listener


def connected_again(stage: Stage, listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = stage.open(socket.SOCK_STREAM)
    client.connect((stage.at(DEAD), PORT))
    server, _ = listener.accept()
    stage.cleanup.callback(server.close)
    return client, server


def test_second_listener_for_copies_is_told(stage: Stage) -> None:
    overhear(stage)
    second = PacketCopies()
    stage.inside(second.open)
    assert second.problem is not None
    assert "another program" in second.problem
