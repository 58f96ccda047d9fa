"""TCP connections through the agent's relay, by real nftables: a server dies, the client notices nothing."""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from ppu_agent.destinations import Address, Destination
from ppu_agent.mechanisms.repeat import RELAY_TABLE
from ppu_agent.plan import Front
from ppu_agent.relay import RelayLimits, TcpRelay
from ppu_agent.via import DatagramFront
from rspdns_lab.net.network import call_in

from rserpool import Protocol
from tests.ppu_agent.kernel_side import KernelSide
from tests.ppu_agent.making import policy
from tests.ppu_agent.sip_messages import request, response
from tests.support.namespaces import Namespace, own_namespace
from tests.support.waiting import until

PORT = 5060
ADDRESSES = {4: ("10.99.8.1", "10.99.8.2", "10.99.8.3"), 6: ("fd98:8::1", "fd98:8::2", "fd98:8::3")}
"""The client's, and those of two servers, which are in another namespace."""
PATIENCE_S = 30.0


class Server:
    """A TCP server: what it gets, and the connections it has."""

    def __init__(self) -> None:
        self.got = b""
        self.writers: list[asyncio.StreamWriter] = []
        self.has_ended = False
        self.changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.got += data
                await self._tell()
        self.has_ended = True
        await self._tell()

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def has_got(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: self.got == data)

    async def ends(self) -> None:
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: self.has_ended)


class Scene:
    """A client's host with a relay, and two servers; `dead` are those that count as dead."""

    def __init__(self, client: Namespace, servers: Namespace, version: int) -> None:
        self.addresses = ADDRESSES[version]
        self.family = socket.AF_INET if version == 4 else socket.AF_INET6
        self.members = [
            Destination(ip_address(address), Protocol.TCP, PORT) for address in self.addresses[1:]
        ]
        self.servers = [Server(), Server()]
        self.dead: set[Destination] = set()
        self.relay = TcpRelay(self.choose)
        self.kernel = KernelSide()
        self._there = self.strangers = servers
        self._elsewhere: list[socket.socket] = []
        self.client = client

    def choose(
        self, asked: Destination, _client: Address, tried: Collection[Destination]
    ) -> Destination | None:
        order = sorted(self.members, key=lambda server: server != asked)
        return next((server for server in order if server not in tried and server not in self.dead), None)

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """In the client's namespace, all of this."""
        async with contextlib.AsyncExitStack() as cleanup:
            for server, address in zip(self.servers, self.addresses[1:], strict=True):
                listening = call_in(
                    Path("/run/netns") / self._there.name,
                    lambda address=address: socket.create_server((address, PORT), family=self.family),
                )
                running = await asyncio.start_server(server.serve, sock=listening)
                cleanup.callback(running.close)
            self.kernel.open()
            cleanup.callback(self.kernel.close)
            await self.relay.start()
            cleanup.push_async_callback(self.relay.close)
            cleanup.callback(self._close_elsewhere)
            self.kernel.relay(self.members, self.relay.port)
            assert self.kernel.writer.problem is None
            yield

    def from_elsewhere(self, address: str, kind: socket.SocketKind) -> socket.socket:
        """A socket of the servers' host, at this address."""
        made: socket.socket = call_in(
            Path("/run/netns") / self._there.name, lambda: socket.socket(self.family, kind)
        )
        made.bind((address, 0))
        made.setblocking(False)
        self._elsewhere.append(made)
        return made

    def _close_elsewhere(self) -> None:
        for connection in self._elsewhere:
            connection.close()

    async def connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As a program on this host: to the first server."""
        return await asyncio.open_connection(self.addresses[1], PORT)

    def die(self) -> None:
        """The first server counts as dead."""
        self.dead.add(self.members[0])
        self.relay.died(self.members[0])


def in_scene(version: int, play: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    """Play this on the client's host."""

    async def run(scene: Scene) -> None:
        async with asyncio.timeout(2 * PATIENCE_S), scene.started():
            await play(scene)

    with own_namespace() as client, own_namespace() as servers:
        client.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", servers.name)
        here, *there = ADDRESSES[version]
        for host, addresses in ((client, [here]), (servers, there)):
            for address in addresses:
                nodad = ["nodad"] if version == 6 else []
                host.ip("addr", "add", f"{address}/{24 if version == 4 else 64}", "dev", "eth0", *nodad)
            host.ip("link", "set", "eth0", "up")
        call_in(Path("/run/netns") / client.name, lambda: asyncio.run(run(Scene(client, servers, version))))


async def read(reader: asyncio.StreamReader, count: int) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.readexactly(count)


@pytest.mark.integration
@pytest.mark.parametrize("version", [4, 6])
def test_requests_that_a_dead_server_left_unanswered_are_answered_by_another(version: int) -> None:
    async def play(scene: Scene) -> None:
        first, second = scene.servers
        reader, writer = await scene.connected()
        writer.write(request("one") + request("two"))
        await first.has_got(request("one") + request("two"))
        first.writers[0].write(response(200, "one"))
        assert await read(reader, len(response(200, "one"))) == response(200, "one")
        scene.die()
        await second.has_got(request("two"))
        second.writers[0].write(response(200, "two"))
        assert await read(reader, len(response(200, "two"))) == response(200, "two")
        writer.write(request("three"))
        await second.has_got(request("two") + request("three"))
        assert scene.relay.counts == {"repeated": 1, "moved": 1, "relayed": 1, "refused": 0}
        writer.close()
        await second.ends()

    in_scene(version, play)


@pytest.mark.integration
def test_server_that_resets_its_connection_with_a_request_in_hand_is_left_at_once() -> None:
    async def play(scene: Scene) -> None:
        first, second = scene.servers
        _, writer = await scene.connected()
        writer.write(request("one"))
        await first.has_got(request("one"))
        first.writers[0].transport.abort()
        await second.has_got(request("one"))
        writer.close()

    in_scene(4, play)


@pytest.mark.integration
def test_server_that_closes_an_idle_connection_does_not_cost_the_client_its_next_request() -> None:
    async def play(scene: Scene) -> None:
        first, _ = scene.servers
        reader, writer = await scene.connected()
        writer.write(request("one"))
        await first.has_got(request("one"))
        first.writers[0].write(response(200, "one"))
        first.writers[0].close()
        assert await read(reader, len(response(200, "one"))) == response(200, "one")
        writer.write(request("two"))
        await first.has_got(request("one") + request("two"))
        first.writers[1].write(response(200, "two"))
        assert await read(reader, len(response(200, "two"))) == response(200, "two")
        first.writers[1].close()
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""

    in_scene(4, play)


@pytest.mark.integration
def test_client_is_told_503_when_no_server_is_left() -> None:
    async def play(scene: Scene) -> None:
        reader, writer = await scene.connected()
        writer.write(request("one"))
        await scene.servers[0].has_got(request("one"))
        scene.dead.add(scene.members[1])
        scene.die()
        told = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert told.startswith(b"SIP/2.0 503 Service Unavailable\r\n")
        writer.close()

    in_scene(4, play)


@pytest.mark.integration
def test_half_closes_pass_and_what_is_no_sip_is_never_sent_elsewhere() -> None:
    async def play(scene: Scene) -> None:
        first, second = scene.servers
        reader, writer = await scene.connected()
        writer.write(b"\x16\x03hello")
        writer.write_eof()
        await first.has_got(b"\x16\x03hello")
        await first.ends()
        first.writers[0].write(b"bye")
        first.writers[0].close()
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"bye"
        reader, writer = await scene.connected()
        writer.write(b"\x16again")
        await first.has_got(b"\x16\x03hello\x16again")
        scene.die()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert second.got == b""

    in_scene(4, play)


@pytest.mark.integration
@pytest.mark.parametrize("banner", [b"", b"220"])
def test_bytes_that_only_begin_like_sip_reach_a_server_that_waits_for_them(banner: bytes) -> None:
    """A telnet to redis, say, whose server answers what it got before anything else is sent."""

    async def play(scene: Scene) -> None:
        first, _ = scene.servers
        reader, writer = await scene.connected()
        writer.write(b"PI")
        await first.has_got(b"PI")
        first.writers[0].write(banner)
        assert await read(reader, len(banner)) == banner
        writer.write(b"NG")
        await first.has_got(b"PING")
        first.writers[0].write(b"PONG")
        assert await read(reader, 4) == b"PONG"
        reader, writer = await scene.connected()
        writer.write(b"ping")
        writer.write_eof()
        await first.has_got(b"PINGping")
        first.writers[1].write(b"pong")
        first.writers[1].close()
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"pong"

    in_scene(4, play)


@pytest.mark.integration
def test_end_of_the_relay_ends_connections_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async def play(scene: Scene) -> None:
        reader, writer = await scene.connected()
        writer.write(request("one"))
        await scene.servers[0].has_got(request("one"))
        await scene.relay.close()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        await asyncio.sleep(0)

    in_scene(4, play)
    told = [words.message for words in caplog.records]
    assert not [
        words
        for words in told
        if "relay.py" in words and "test_relay.py" not in words.replace("..._", "test_")
    ]


@pytest.mark.integration
def test_connection_through_which_nothing_passes_is_reset() -> None:
    async def play(scene: Scene) -> None:
        scene.relay.limits = RelayLimits(idle_s=0.3)
        reader, writer = await scene.connected()
        writer.write(request("one"))
        await scene.servers[0].has_got(request("one"))
        scene.servers[0].writers[0].write(response(200, "one"))
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            while scene.relay.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    in_scene(4, play)


@pytest.mark.integration
@pytest.mark.parametrize("version", [4, 6])
def test_front_is_for_its_clients_and_each_has_its_share(version: int) -> None:
    """The second server's host is the client; the first one's address is not admitted."""

    async def play(scene: Scene) -> None:
        here, stranger, client = scene.addresses
        front = Destination(ip_address(here) + 100, Protocol.TCP, PORT)
        scene.strangers.ip("route", "add", str(front.address), "via", here)
        admitting = replace(policy(), clients=(ip_network(client),))
        scene.kernel.relay([], scene.relay.port, [Front(front, admitting, ())])
        assert scene.kernel.writer.problem is None
        scene.relay.limits = RelayLimits(connections=6, share=0.5)
        refused = scene.from_elsewhere(stranger, socket.SOCK_STREAM)
        with pytest.raises((TimeoutError, OSError)):
            async with asyncio.timeout(1.0):
                await asyncio.get_running_loop().sock_connect(refused, (str(front.address), PORT))
        ended = 0
        opened = []
        for _ in range(5):
            made = scene.from_elsewhere(client, socket.SOCK_STREAM)
            await asyncio.get_running_loop().sock_connect(made, (str(front.address), PORT))
            reader, writer = await asyncio.open_connection(sock=made)
            writer.write(request("one"))
            opened.append((reader, writer))
        for reader, _ in opened[3:]:
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(1), PATIENCE_S)
            ended += 1
        assert (ended, scene.relay.counts["refused"]) == (2, 2)
        _, writer = await asyncio.open_connection(str(front.address), PORT)
        writer.write(request("two"))
        async with asyncio.timeout(PATIENCE_S):
            while scene.relay.counts["relayed"] < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    in_scene(version, play)


@pytest.mark.integration
def test_flood_of_datagrams_from_one_address_costs_no_other_client_its_flow() -> None:
    async def play(scene: Scene) -> None:
        here, server, flooder = scene.addresses
        sent: list[tuple[int, bytes]] = []
        front = DatagramFront(
            Destination(ip_address(here) + 100, Protocol.UDP, PORT),
            lambda front, client: scene.members[0],
            lambda front, server, flow, data: sent.append((flow, data)),
            itertools.count(1),
            RelayLimits(clients=8, share=0.5),
        )
        front.start()
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.setblocking(False)
        client.sendto(b"call", (here, front.port))
        async with asyncio.timeout(PATIENCE_S):
            while not sent:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            for _ in range(30):
                scene.from_elsewhere(flooder, socket.SOCK_DGRAM).sendto(b"flood", (here, front.port))
            while len(sent) < 31:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            front.answer(ip_address(server), sent[0][0], b"answer")
            assert await asyncio.get_running_loop().sock_recv(client, 100) == b"answer"
        client.close()
        front.close()

    in_scene(4, play)


@pytest.mark.integration
def test_connection_not_redirected_to_the_relay_is_refused() -> None:
    async def play(scene: Scene) -> None:
        reader, _ = await asyncio.open_connection("127.0.0.1", scene.relay.port)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), PATIENCE_S)

    in_scene(4, play)


@pytest.mark.integration
def test_the_kernel_removes_the_table_with_its_process() -> None:
    code = (
        "import time; from ppu_agent.writer import Writer; writer = Writer(); writer.open();"
        "from ppu_agent.mechanisms.repeat import open_relay; open_relay(writer);"
        "print('ready', flush=True); time.sleep(600)"
    )
    with own_namespace() as host:
        agent = host.start(sys.executable, "-c", code)
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        assert RELAY_TABLE.name in host.run("nft", "list", "tables").stdout
        os.killpg(agent.pid, signal.SIGKILL)
        until(lambda: RELAY_TABLE.name not in host.run("nft", "list", "tables").stdout)
        agent.wait()


def test_dead_man_timer_kills_a_process_that_stands_still() -> None:
    code = (
        "import os, signal; from ppu_agent.kernel import DeadManTimer; timer = DeadManTimer(0.5);"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    begin_s = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", code])
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    assert time.monotonic() - begin_s >= 0.5
