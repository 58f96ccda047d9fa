"""Models of UDP and TCP for health checks and probes, and the servers at the other end.

The sockets stand in place of Python's, where the product uses them in its event loop. A server that is frozen
accepts connections (its kernel does) and says nothing.
"""

import asyncio
import errno
import socket
from collections import deque
from typing import Any, Final

from rspdns_lab.simulate.kernel import SimulatedProcess
from rspdns_lab.simulate.network import SimulatedHost, SimulatedNetwork

SYN_REPEATS_S: Final = (1.0, 2.0, 4.0)
_COPIED: Final = (b"Via:", b"From:", b"To:", b"Call-ID:", b"CSeq:")


def sip_ok(request: bytes) -> bytes:
    """The response 200 to a SIP request."""
    lines = [line for line in request.split(b"\r\n") if line.startswith(_COPIED)]
    return b"\r\n".join([b"SIP/2.0 200 OK", *lines, b"Content-Length: 0", b"", b""])


class SimulatedServer:
    """An application server: a process that listens for SIP over UDP, and for connections over TCP."""

    def __init__(self, host: SimulatedHost, port: int) -> None:
        self.host = host
        self.process: SimulatedProcess = host.start("server")
        self.connections: dict[int, SimulatedSocket] = {}
        self._port = port
        host.listeners["udp", port] = host.listeners["tcp", port] = self
        self.process.on_end.append(self._ended)

    def _ended(self) -> None:
        for protocol in ("udp", "tcp"):
            if self.host.listeners.get((protocol, self._port)) is self:
                del self.host.listeners[protocol, self._port]
        connections, self.connections = self.connections, {}
        for connection in connections.values():
            connection.arrive_after_way(b"", self.host)

    def answer(self, request: bytes, sender: "SimulatedSocket") -> None:
        """Answer a request; runs in the process."""
        sender.arrive_after_way(sip_ok(request), self.host)


class SimulatedSocket:
    """A socket of UDP or TCP. `network` is set by the scenario."""

    network: SimulatedNetwork

    def __init__(self, family: Any = socket.AF_INET, type: int = 0, proto: int = 0) -> None:  # noqa: A002 - Python's
        del family, proto
        self._host = self.network.here
        process = self.network.kernel.running
        assert process is not None  # noqa: S101 - sockets are made by processes
        self._process = process
        self._is_datagram = (type & 0xF) == socket.SOCK_DGRAM
        self._number = self.network.descriptor()
        self._port = self._host.free_port()
        self._peer: tuple[str, int] = ("", 0)
        self._arrived: deque[bytes | OSError] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._protocol: Any = None

    # Python's interface

    def fileno(self) -> int:
        """The number for the event loop; -1 once closed."""
        return self._number

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *arguments: Any) -> None:
        """Options make no difference."""

    def getsockname(self) -> tuple[str, int]:
        """Its own address."""
        return self._host.address, self._port

    def connect(self, address: tuple[str, int]) -> None:
        """Speak with this address alone (UDP)."""
        self._peer = address

    def send(self, data: bytes) -> int:
        """Send to the peer."""
        if self._arrived and isinstance(self._arrived[0], OSError):
            raise self._arrived.popleft()  # type: ignore[misc]
        self._send(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        """Return the bytes that arrived. Raise BlockingIOError when nothing did, or the error that did."""
        del size
        if not self._arrived:
            raise BlockingIOError
        news = self._arrived.popleft()
        if isinstance(news, OSError):
            raise news
        return news

    def close(self) -> None:
        """Close it."""
        if self._number >= 0:
            server = self._server()
            if server is not None:
                server.connections.pop(self._number, None)
            self._number = -1
            if self._waiter is not None and not self._waiter.done():
                self._waiter.cancel()

    # The event loop's side

    async def connected(self, address: tuple[str, int]) -> None:
        """Connect over TCP: return when the server's kernel took it. Raises OSError when it refused."""
        self._peer = address
        for wait_s in (*SYN_REPEATS_S, None):
            target = self.network.by_address.get(address[0])
            there_s = None if target is None else self.network.delay_s(self._host, target)
            back_s = None if target is None or there_s is None else self.network.delay_s(target, self._host)
            if target is not None and there_s is not None and back_s is not None:
                await asyncio.sleep(there_s + back_s)
                server = target.listeners.get(("tcp", address[1]))
                if server is None:
                    raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
                server.connections[self._number] = self
                return
            if wait_s is not None:
                await asyncio.sleep(wait_s)
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    async def received(self, size: int) -> bytes:
        """Return what arrives over TCP, nothing at its end."""
        while not self._arrived:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.recv(size)

    def transport(self, protocol: Any) -> "SimulatedSocket":
        """This socket as a transport of asyncio."""
        self._protocol = protocol
        return self

    def get_extra_info(self, name: str) -> Any:
        """The one thing that is asked for: its own address."""
        return self.getsockname() if name == "sockname" else None

    def sendto(self, data: bytes) -> None:
        """Send to the peer."""
        self._send(data)

    # The way there and back

    def _server(self) -> "SimulatedServer | None":
        target = self.network.by_address.get(self._peer[0])
        if target is None:
            return None
        server: SimulatedServer | None = target.listeners.get(
            ("udp" if self._is_datagram else "tcp", self._peer[1])
        )
        return server

    def _send(self, data: bytes) -> None:
        self._process.datagrams += 1
        target = self.network.by_address.get(self._peer[0])
        delay_s = None if target is None else self.network.delay_s(self._host, target)
        if target is not None and delay_s is not None:
            self.network.kernel.after(delay_s, self._arrived_there, target, data)

    def _arrived_there(self, target: SimulatedHost, data: bytes) -> None:
        if not target.is_up:
            return
        server = self._server()
        if server is None:
            if self._is_datagram:  # ICMP
                self.arrive_after_way(
                    ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), target
                )
        else:
            server.process.do(server.answer, data, self)

    def arrive_after_way(self, news: bytes | OSError, source: SimulatedHost) -> None:
        """Something is sent to this socket."""
        delay_s = self.network.delay_s(source, self._host)
        if delay_s is not None:
            self.network.kernel.push(self.network.kernel.now + delay_s, self._process, self._arrive, (news,))

    def _arrive(self, news: bytes | OSError) -> None:
        if self._number < 0:
            return
        if self._protocol is not None:
            if isinstance(news, OSError):
                self._protocol.error_received(news)
            else:
                self._protocol.datagram_received(news, self._peer)
            return
        self._arrived.append(news)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._process.readable(self._number)


class SocketModule:
    """Python's module `socket`, with another `socket.socket`."""

    socket = SimulatedSocket

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)
