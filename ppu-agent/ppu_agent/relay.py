"""Stands between clients and a pool's TCP servers: for `on_dead = { tcp = "repeat" }`, and `via = "sctp"`.

nftables sends the connections here (`ppu_agent.mechanisms.repeat`); conntrack knows where they were to go.
Each has a connection of its own to that server. When the server dies, the client's connection stays: the
requests without an answer go to a living server. `ppu_agent.unanswered` decides what is repeated, the agent
where to.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from daemon_kit.addresses import is_on_this_host
from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppu_agent.destinations import Address, Destination
from ppu_agent.rules import PROBE_MARK
from ppu_agent.unanswered import DOUBT_S, Conversation, Passed
from rserpool import Protocol

Choose = Callable[[Destination, Address, Collection[Destination]], Destination | None]
"""The server to which a connection to this destination goes now; None: nowhere.

Told are the client's address, and the destinations that were tried."""

StreamPair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[Destination, Destination], Awaitable[StreamPair]]
"""Connect, for a connection to the first destination, to the second one. Raises OSError."""
KEPT_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of messages, for all connections together."""
CONNECT_TIMEOUT_S: Final = 1.5
FLUSH_S: Final = 30.0
"""The time that a client has to take the last bytes of a connection that ended in order."""
_LEAVE_S: Final = 1.0
_AT_ONCE_BYTES: Final = 16 * 1024
"""So much is read at once, twice as much may wait to be read, and once as much to be written."""
_SO_ORIGINAL_DST: Final = 80
_SOL_IPV6: Final = 41
_LINGER: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """The limits of clients: connections and UDP clients at a time, the share of both that one address may
    have, and for how long nothing may pass through a connection."""

    connections: int = 4000
    clients: int = 4000
    share: float = 0.25
    idle_s: float = 3600.0

    def allowed(self, most: int, address: Address) -> int:
        """How many of `most` this client may have; this host's own programs may have all."""
        return most if is_on_this_host(address) else max(1, int(most * self.share))


class TcpRelay:
    """Listens at a free port of this host, and admits what was redirected to it. Needs CAP_NET_ADMIN.

    `repeats` says whether unanswered SIP requests of connections to a destination may go to another server.
    """

    def __init__(
        self,
        choose: Choose,
        dial: Dial | None = None,
        repeats: Callable[[Destination], bool] = lambda asked: True,
        limits: RelayLimits | None = None,
    ) -> None:
        self.port = 0
        self.limits = limits or RelayLimits()
        self.counts = {"repeated": 0, "moved": 0, "relayed": 0, "refused": 0}
        self._by_client: Counter[Address] = Counter()
        self._roomy_for = 1
        self.connections: set[_RelayedConnection] = set()
        self._choose = choose
        self._dial = dial or (lambda asked, server: connect(server))
        self._repeats = repeats
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = get_logger("relay")

    async def start(self) -> None:
        """Listen. Raises FatalError."""
        try:
            four = await asyncio.start_server(self._accept, "0.0.0.0", 0, limit=_AT_ONCE_BYTES)  # noqa: S104
            self._servers.append(four)
            self.port = four.sockets[0].getsockname()[1]
            with contextlib.suppress(OSError):  # a host without IPv6
                self._servers.append(
                    await asyncio.start_server(self._accept, "::", self.port, limit=_AT_ONCE_BYTES)
                )
        except OSError as problem:
            raise FatalError(f"can't listen for the connections to be relayed: {problem.strerror}") from None

    async def leave(self) -> None:
        """Give servers 1 s to answer what they were asked, then end every connection in order."""
        end_s = _now() + _LEAVE_S
        while any(connection.is_waiting for connection in self.connections) and _now() < end_s:  # noqa: ASYNC110
            await asyncio.sleep(_LEAVE_S / 20)
        for connection in self.connections:
            connection.is_leaving = True
        await self.close()

    async def close(self) -> None:
        """End every connection."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def died(self, destination: Destination) -> None:
        """A server died, by whatever transport it was registered: what goes to it goes on elsewhere."""
        for connection in self.connections:
            if connection.server is not None and connection.server.endpoint == destination.endpoint:
                connection.move()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        accepted: socket.socket = writer.get_extra_info("socket")
        asked = original_destination(accepted)
        client = _client_of(writer)
        if asked is None or task is None or client is None or not self._has_room(client[0]):
            self.counts["refused"] += 1
            abort(writer)
            return
        self._tasks.add(task)
        writer.transport.set_write_buffer_limits(_AT_ONCE_BYTES)
        connection = _RelayedConnection(
            asked, client, reader, writer, self._choose, self._dial, self._conversation(asked), self.counts
        )
        self.connections.add(connection)
        self._make_room()
        self._by_client[client[0]] += 1
        self.counts["relayed"] += 1
        try:
            await connection.run(self.limits.idle_s)
        except asyncio.CancelledError:
            pass  # the relay ends; asyncio's streams would print a traceback
        finally:
            self.connections.discard(connection)
            self._roomy_for = min(self._roomy_for, max(1, len(self.connections)))
            self._tasks.discard(task)
            self._by_client[client[0]] -= 1
            if not self._by_client[client[0]]:
                del self._by_client[client[0]]

    def _has_room(self, client: Address) -> bool:
        most, has = self.limits.connections, self._by_client[client]
        return len(self.connections) < most and (not has or has < self.limits.allowed(most, client))

    def _make_room(self) -> None:
        """When there are twice as many connections, each may keep half as much, also a silent one."""
        if len(self.connections) >= 2 * self._roomy_for:
            self._roomy_for = len(self.connections)
            for connection in self.connections:
                connection.make_room()

    def _conversation(self, asked: Destination) -> Conversation:
        """A conversation that keeps as much as leaves room for as many as there may be."""
        return Conversation(
            is_sip=self._repeats(asked), room=lambda: KEPT_BYTES // max(1, len(self.connections))
        )


class _RelayedConnection:
    """One client's connection, and the one to its server of now."""

    def __init__(
        self,
        asked: Destination,
        client: tuple[Address, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        choose: Choose,
        dial: Dial,
        conversation: Conversation,
        counts: dict[str, int],
    ) -> None:
        self.server: Destination | None = None
        self.is_leaving = False
        self.client = client
        self._asked = asked
        self._reader, self._writer = reader, writer
        self._source = (str(self.client[0]), self.client[1])
        self._choose = choose
        self._upstream = _Upstream(dial)
        self._counts = counts
        self._was_up = False
        self._conversation = conversation
        self._used_at_s = _now()
        self._doubt_ends_s: float | None = None
        """When bytes that may be SIP are taken for something else; None: there are none."""
        self._wants = asyncio.Event()
        """Set while the client waits for a server."""
        self._died = self._client_is_done = self._client_is_gone = False

    @property
    def is_waiting(self) -> bool:
        """Whether a request is without its answer."""
        return self._conversation.is_waiting(_now())

    def make_room(self) -> None:
        """Others need some of it."""
        self._conversation.make_room()

    def move(self) -> None:
        """The server of now died."""
        self._died = True
        self._upstream.end()

    async def run(self, idle_s: float) -> None:
        """Pass everything on until one side has ended, no server is left, or nothing passed for `idle_s`."""
        asking = asyncio.create_task(self._listen_to_client())
        watching = asyncio.create_task(self._end_when_idle(idle_s))
        is_whole = False
        try:
            is_whole = await self._listen_to_servers()
        finally:
            asking.cancel()
            watching.cancel()
            await asyncio.gather(asking, watching, return_exceptions=True)
            self._upstream.end()
            if is_whole or self.is_leaving:
                self._writer.close()
                # A client that reads nothing would keep what is left, and a descriptor.
                asyncio.get_running_loop().call_later(FLUSH_S, self._writer.transport.abort)
            else:
                abort(self._writer)

    async def _end_when_idle(self, idle_s: float) -> None:
        while (left_s := self._used_at_s + idle_s - _now()) > 0:  # noqa: ASYNC110 - a time, not an event
            await asyncio.sleep(left_s)
        self._died = True
        self._lose_client()

    def _lose_client(self) -> None:
        self._client_is_gone = True
        self._wants.set()
        self._upstream.end()

    async def _listen_to_client(self) -> None:
        try:
            conversation = self._conversation
            while (data := await self._next_of(self._reader)) != b"" or conversation.is_in_doubt:
                self._wants.set()
                await self._upstream.is_up.wait()
                self._wants.clear()
                await self._pass_on(
                    conversation.from_client(data, _now()) if data else conversation.end_doubt()
                )
            self._client_is_done = True
            self._wants.set()
            await self._upstream.is_up.wait()
            if self._upstream.writer is not None:
                self._upstream.writer.write_eof()
        except OSError:
            self._lose_client()

    async def _next_of(self, reader: asyncio.StreamReader) -> bytes | None:
        """The bytes that came; empty at the end. None: it is time to end a doubt. Raises OSError."""
        doubt = asyncio.timeout_at(self._doubt_ends_s)
        try:
            async with doubt:
                data = await reader.read(_AT_ONCE_BYTES)
        except TimeoutError:
            if not doubt.expired():
                raise
            return None
        self._used_at_s = _now()
        return data

    async def _pass_on(self, passed: Passed) -> None:
        """A server that is lost is no error: what it did not answer goes to the next."""
        if not self._conversation.is_in_doubt:
            self._doubt_ends_s = None
        elif self._doubt_ends_s is None:
            self._doubt_ends_s = _now() + DOUBT_S
        if passed.to_client:
            self._writer.write(passed.to_client)
            await self._writer.drain()
        if passed.to_server and (writer := self._upstream.writer) is not None:
            writer.write(passed.to_server)
            with contextlib.suppress(OSError):
                await writer.drain()

    async def _listen_to_servers(self) -> bool:
        """One server after the other. Return whether the client is to see an orderly end."""
        tried: set[Destination] = set()
        while not self._client_is_gone:
            self.server = self._choose(self._asked, self.client[0], tried)
            if self.server is None:
                self._writer.write(self._conversation.refuse(self._source, all_of_them=True))
                return self._conversation.is_sip and self._was_up
            tried.add(self.server)
            reader = await self._reach(self.server)
            if reader is None:
                continue
            is_whole = await self._pass_answers(reader)
            self._upstream.end()
            if self._client_is_gone or not self._conversation.is_sip:
                return is_whole and not self._died
            if not self._died and not self._conversation.is_waiting(_now()):
                # The client may be writing a request just now, which closing its connection would lose.
                await self._wants.wait()
                if self._client_is_done:
                    return is_whole
                tried = set()
            else:
                tried = {self.server}
            self._conversation.next_server()
            self._counts["moved"] += 1
        return False

    async def _reach(self, server: Destination) -> asyncio.StreamReader | None:
        """Connect, and repeat what was not answered; None: not reached in time."""
        self._died = False
        reached = await self._upstream.reach(self._asked, server)
        if reached is None:
            return None
        reader, writer = reached
        self._writer.write(self._conversation.refuse(self._source, all_of_them=False))
        unanswered = self._conversation.repeat(_now())
        self._counts["repeated"] += len(unanswered)
        writer.write(b"".join(unanswered))
        if self._client_is_done:
            writer.write_eof()
        self._was_up = True
        return reader

    async def _pass_answers(self, reader: asyncio.StreamReader) -> bool:
        """Until the server ends the connection, is lost, or dies. Return whether it ended in order."""
        try:
            while (data := await self._next_of(reader)) != b"":
                conversation = self._conversation
                await self._pass_on(conversation.from_server(data) if data else conversation.end_doubt())
            await self._pass_on(self._conversation.end_doubt(is_server_done=True))
        except OSError:
            return False
        return True


class _Upstream:
    """The connection to the server of now; `writer` is None while there is none."""

    def __init__(self, dial: Dial) -> None:
        self.writer: asyncio.StreamWriter | None = None
        self.is_up = asyncio.Event()
        self._dial = dial
        self._reaching: asyncio.Future[StreamPair] | None = None

    async def reach(self, asked: Destination, server: Destination) -> StreamPair | None:
        """Connect, for a connection to `asked`; None: not reached in time, or ended meanwhile."""
        self._reaching = asyncio.ensure_future(self._dial(asked, server))
        done, _ = await asyncio.wait((self._reaching,), timeout=CONNECT_TIMEOUT_S)
        reaching, self._reaching = self._reaching, None
        if not done or reaching.cancelled() or reaching.exception() is not None:
            reaching.cancel()
            return None
        reader, self.writer = reaching.result()
        self.writer.transport.set_write_buffer_limits(_AT_ONCE_BYTES)
        self.is_up.set()
        return reader, self.writer

    def end(self) -> None:
        """Reset the connection, or give up making it."""
        self.is_up.clear()
        if self._reaching is not None:
            self._reaching.cancel()
        if self.writer is not None:
            abort(self.writer)
            self.writer = None


def _client_of(writer: asyncio.StreamWriter) -> tuple[Address, int] | None:
    """The client that connected; None: it is gone already."""
    peer = writer.get_extra_info("peername")
    return (ip_address(peer[0]), int(peer[1])) if peer else None


def _now() -> float:
    return asyncio.get_running_loop().time()


async def connect(server: Destination) -> StreamPair:
    """A connection that the agent's own rules let through. Raises OSError."""
    family = socket.AF_INET if server.address.version == 4 else socket.AF_INET6
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, PROBE_MARK)
        await asyncio.get_running_loop().sock_connect(made, (str(server.address), server.port))
        return await asyncio.open_connection(sock=made, limit=_AT_ONCE_BYTES)
    except BaseException:
        made.close()
        raise


def abort(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset; what was not sent yet is dropped."""
    ended: socket.socket = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        ended.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
    writer.transport.abort()


def original_destination(accepted: socket.socket) -> Destination | None:
    """The destination to which a redirected connection was to go, as conntrack knows; None for one that was
    not redirected."""
    level, size = (socket.SOL_IP, 16) if accepted.family == socket.AF_INET else (_SOL_IPV6, 28)
    try:
        found = accepted.getsockopt(level, _SO_ORIGINAL_DST, size)
    except OSError:
        return None
    port = int.from_bytes(found[2:4], "big")
    address = ip_address(found[4:8] if level == socket.SOL_IP else found[8:24])
    here = accepted.getsockname()
    if (str(address), port) == (here[0], here[1]):
        return None
    return Destination(address, Protocol.TCP, port)
