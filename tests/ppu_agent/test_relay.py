"""TCP connections through the agent's relay, by real nftables: a server dies, the client notices nothing."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from ppu_agent.destinations import Address, Destination
from ppu_agent.relay import Relay
from ppu_agent.ruleset import RELAY_TABLE
from ppu_agent.writer import Writer
from rspdns_lab.net.network import call_in

from rserpool import Protocol
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
        self.members = [Destination(ip_address(one), Protocol.TCP, PORT) for one in self.addresses[1:]]
        self.servers = [Server(), Server()]
        self.dead: set[Destination] = set()
        self.relay = Relay(self.choose)
        self.writer = Writer()
        self._there = servers
        self.client = client

    def choose(
        self, asked: Destination, _client: Address, tried: Collection[Destination]
    ) -> Destination | None:
        order = [asked, *(one for one in self.members if one != asked)]
        return next((one for one in order if one not in tried and one not in self.dead), None)

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
            self.writer.open()
            cleanup.callback(self.writer.close)
            self.writer.open_relay()
            await self.relay.start()
            cleanup.push_async_callback(self.relay.close)
            self.writer.relay(self.members, self.relay.port)
            assert self.writer.problem is None
            yield

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
        assert scene.relay.counts == {"repeated": 1, "moved": 1, "relayed": 1}
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
        "writer.open_relay(); print('ready', flush=True); time.sleep(600)"
    )
    with own_namespace() as host:
        agent = host.start(sys.executable, "-c", code)
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        assert RELAY_TABLE in host.run("nft", "list", "tables").stdout
        os.killpg(agent.pid, signal.SIGKILL)
        until(lambda: RELAY_TABLE not in host.run("nft", "list", "tables").stdout)
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
