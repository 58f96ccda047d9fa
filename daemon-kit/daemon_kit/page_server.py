"""Serves one page over HTTP/1.1 with nothing but the standard library: aiohttp costs 10 MB of memory.

For what Prometheus reads. One request for each connection; connections, bytes and time are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from daemon_kit.addresses import ListenAddress
from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

MAX_HEAD_BYTES: Final = 8192
"""The most bytes of the request line and the headers."""
REQUEST_S: Final = 5.0
"""How long a connection may live until its page was taken."""


class PageServer:
    """Answers GET and HEAD for `path` with what `page` returns, made anew each time. Started once.

    More than `connections` at a time are closed at once.
    """

    def __init__(
        self,
        address: ListenAddress,
        path: str,
        content_type: str,
        page: Callable[[], bytes],
        *,
        connections: int = 8,
    ) -> None:
        self._address = address
        self._path = path
        self._content_type = content_type
        self._page = page
        self._most = connections
        self._open: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises FatalError when that can't be done."""
        host, port = str(self._address.address), self._address.port
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: _Connection(self), host, port, reuse_address=True)
        except OSError as error:
            raise FatalError(self._address.refusal(error)) from None

    async def close(self) -> None:
        """Close every connection."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._open):
            connection.abort()

    def admit(self, connection: _Connection) -> bool:
        """Take a new connection, unless there are too many."""
        if len(self._open) >= self._most:
            return False
        self._open.add(connection)
        return True

    def forget(self, connection: _Connection) -> None:
        """A connection ended."""
        self._open.discard(connection)

    def answer(self, head: bytes) -> bytes:
        """Return the whole answer to a request, whatever stands in it."""
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        target, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"this is no HTTP/1.1 request\n")
        if target.partition(b"?")[0] != self._path.encode():
            return _response("404 Not Found", f"there is {self._path} only\n".encode())
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET or HEAD only\n", extra="Allow: GET, HEAD\r\n")
        try:
            page = self._page()
        except Exception as problem:  # a page that can't be made must not end the service
            get_logger("http").error("page_failed", path=self._path, problem=repr(problem), exc_info=problem)
            return _response("500 Internal Server Error", b"the page can't be made; the log says why\n")
        return _response("200 OK", page, self._content_type, with_body=method == b"GET")


def _response(
    status: str,
    body: bytes,
    content_type: str = "text/plain; charset=utf-8",
    *,
    extra: str = "",
    with_body: bool = True,
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"{extra}Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


class _Connection(asyncio.Protocol):
    def __init__(self, server: PageServer) -> None:
        self._server = server
        self._head = bytearray()
        self._is_answered = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream server's is
        self._transport = transport
        if not self._server.admit(self):
            transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(REQUEST_S, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_answered or self._transport is None:
            return
        self._head += data[: MAX_HEAD_BYTES + 1]
        if b"\r\n\r\n" in self._head:
            answer = self._server.answer(bytes(self._head))
        elif len(self._head) > MAX_HEAD_BYTES:
            answer = _response("431 Request Header Fields Too Large", b"8192 bytes at most\n")
        else:
            return
        self._is_answered = True
        self._transport.write(answer)
        self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
