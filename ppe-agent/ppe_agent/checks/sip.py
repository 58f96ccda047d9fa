"""Sends SIP OPTIONS over UDP, TCP or SCTP and waits for the answer."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final, Protocol

from daemon_kit.finding import Finding, Life, of_error
from daemon_kit.sip import OptionsRequest, Response, ResponseStream, new_request, parse_response

from ppe_agent.addresses import Address, family_of
from ppe_agent.checks.base import PeriodicCheck, Timing
from ppe_agent.checks.tcp import OutgoingSocket

_READ_BYTES: Final = 64 * 1024
_UNANSWERED_BEFORE_RECONNECT: Final = 10
_SOCKETS: Final = {"TCP": socket.IPPROTO_TCP, "SCTP": socket.IPPROTO_SCTP}


class SipAsker(Protocol):
    """Asks one server."""

    async def ask(self, timeout_ms: int) -> Response:
        """Return the final response to one OPTIONS.

        Raises TimeoutError, and any other OSError when the network says that there is none.
        """

    def close(self) -> None:
        """Let go of what is held between questions."""


def make_asker(address: Address, port: int, transport: str, on_closed: Callable[[], None]) -> SipAsker:
    """Return the asker for `transport` ("udp", "tcp", "sctp").

    `on_closed` is called when the server ends a connection that was held.
    """
    if transport == "udp":
        return UdpAsker(address, port)
    return StreamAsker(address, port, transport.upper(), on_closed)


class _Requests:
    """Makes one OPTIONS after the other."""

    def __init__(self, address: Address, port: int, transport: str) -> None:
        self._target = (str(address), port)
        self._transport = transport
        self._sequence = 0

    def next(self, local_host: str, local_port: int) -> OptionsRequest:
        self._sequence = self._sequence % 0x7FFFFFFF + 1
        return new_request(
            self._target,
            (local_host, local_port),
            transport=self._transport,
            sender="ppe-agent",
            sequence=self._sequence,
        )


class UdpAsker:
    """Asks over UDP: from one socket while every question is answered, else from a new one.

    So no late ICMP error or answer is taken for another's. An error on a socket that was used before may come
    from whoever guessed its port in the meantime: it counts only if a new socket has it, too.
    """

    def __init__(self, address: Address, port: int) -> None:
        self._family = family_of(address)
        self._to = (str(address), port)
        self._requests = _Requests(address, port, "UDP")
        self._socket: socket.socket | None = None
        self._local: tuple[str, int] = ("", 0)
        self._request: OptionsRequest | None = None
        self._answer: asyncio.Future[Response] | None = None

    async def ask(self, timeout_ms: int) -> Response:
        """Return the final response to one OPTIONS; raises OSError."""
        loop = asyncio.get_running_loop()
        gives_up_s = loop.time() + timeout_ms / 1000
        if self._socket is not None:
            try:
                return await self._ask(self._socket, gives_up_s)
            except TimeoutError:
                raise
            except OSError:
                pass
        return await self._ask(self._open(), gives_up_s)

    def close(self) -> None:
        """End the socket."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _open(self) -> socket.socket:
        # A bare socket: asyncio's datagram transports cost several times as much, four times a second.
        asking = socket.socket(self._family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            asking.connect(self._to)  # the kernel lets in only what comes from there
            self._local = asking.getsockname()[:2]
            asyncio.get_running_loop().add_reader(asking, self._readable)
        except BaseException:
            asking.close()
            raise
        self._socket = asking
        return asking

    async def _ask(self, asking: socket.socket, gives_up_s: float) -> Response:
        loop = asyncio.get_running_loop()
        self._request = request = self._requests.next(*self._local)
        answer: asyncio.Future[Response] = loop.create_future()
        self._answer = answer
        timer = loop.call_at(gives_up_s, _give_up, answer)
        try:
            asking.send(request.encode())
            return await answer
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
            self._answer = None

    def _readable(self) -> None:
        if self._socket is None:
            return
        answer = self._answer
        try:
            data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            if answer is None or answer.done():
                self.close()
            else:
                answer.set_exception(error)
            return
        if answer is None or answer.done():
            self.close()  # nobody asked: a talkative server must not keep the loop from its other work
            return
        response = parse_response(data)
        if response is None or not response.is_final or self._request is None:
            return
        if self._request.is_answered_by(response):
            answer.set_result(response)


def _give_up(answer: asyncio.Future[Response]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


class StreamAsker:
    """Asks over a connection (TCP, or a one-to-one SCTP association) that is held from question to question.

    A server that hangs is asked on the same connection: a new one for each question would fill its backlog.
    """

    def __init__(self, address: Address, port: int, transport: str, on_closed: Callable[[], None]) -> None:
        self._address = address
        self._to = (str(address), port)
        self._protocol = _SOCKETS[transport]
        self._requests = _Requests(address, port, transport)
        self._on_closed = on_closed
        self._connection: socket.socket | None = None
        self._reader: asyncio.Task[None] | None = None
        self._request: OptionsRequest | None = None
        self._answer: asyncio.Future[Response] | None = None
        self._unanswered = 0

    async def ask(self, timeout_ms: int) -> Response:
        """Return the final response to one OPTIONS; raises OSError."""
        async with asyncio.timeout(timeout_ms / 1000):
            return await self._ask()

    async def _ask(self) -> Response:
        if self._unanswered >= _UNANSWERED_BEFORE_RECONNECT:
            self.close()
        connection = self._connection or await self._connect()
        self._unanswered += 1
        loop = asyncio.get_running_loop()
        self._request = self._requests.next(*connection.getsockname()[:2])
        self._answer = loop.create_future()
        try:
            await loop.sock_sendall(connection, self._request.encode())
            response = await self._answer
        except OSError:
            self.close()
            raise
        finally:
            self._answer = None
        self._unanswered = 0
        return response

    def close(self) -> None:
        """End the connection."""
        if self._reader is not None:
            self._reader.cancel()
        if self._connection is not None:
            self._connection.close()
        self._reader = self._connection = None
        self._unanswered = 0

    async def _connect(self) -> socket.socket:
        kind = socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        connection = OutgoingSocket(family_of(self._address), kind, self._protocol)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(connection, self._to)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._reader = loop.create_task(self._read(connection))
        return connection

    async def _read(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        stream = ResponseStream()
        why = "the server closed the connection"
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(connection, _READ_BYTES):
                for response in stream.feed(data):
                    self._take(response)
                if stream.is_garbage:
                    why = "what it sends is no SIP"
                    break
                await asyncio.sleep(0)  # a talkative server must not keep the loop from its other work
        if self._connection is connection:
            connection.close()
            self._connection = self._reader = None
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(ConnectionResetError(why))
            self._on_closed()

    def _take(self, response: Response) -> None:
        if self._answer is None or self._answer.done() or self._request is None:
            return
        if response.is_final and self._request.is_answered_by(response):
            self._answer.set_result(response)


class SipOptionsCheck(PeriodicCheck):
    """Sends OPTIONS to `address`:`port` over `transport` ("udp", "tcp" or "sctp")."""

    kind = "sip-options"

    def __init__(self, address: Address, port: int, timing: Timing, transport: str = "udp") -> None:
        super().__init__(f"{transport.upper()} port {port}", timing)
        self._asker = make_asker(address, port, transport, self.hurry)

    async def attempt(self) -> Finding:
        """Ask once."""
        try:
            response = await self._asker.ask(self._timing.timeout_ms)
        except TimeoutError:
            return Finding(Life.SILENT, f"no answer to OPTIONS on {self.target}", self._timing.timeout_ms)
        except OSError as error:
            return of_error(error, self.target)
        return Finding(Life.ALIVE if response.shows_life else Life.UNWELL, f"OPTIONS answered {response}")

    async def close(self) -> None:
        """End the held connection."""
        self._asker.close()
