"""Serves an aiohttp application at one address. Connections, the time to the first request and the time in
which an answer is taken are bounded.

Wants the package aiohttp, which not every service here needs.

`host_is_own` and `origin_is_own` tell which requests are meant for this service. A browser sends requests of
any page to any address it can reach, also to the loopback address. The Host header tells by which name (a
name of a foreign page that was made to lead here, "DNS rebinding", is not ours); the Origin header tells
which page asked."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Collection

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from daemon_kit.addresses import ListenAddress
from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def own_names(address: ListenAddress, more: Collection[str] = ()) -> frozenset[str]:
    """The names a service at `address` may be called by: the address, `more`, and on loopback its names."""
    names = {str(address.address), *(name.lower().rstrip(".") for name in more)}
    return frozenset(names | _LOOPBACK_NAMES if address.is_loopback else names)


def host_is_own(host: str | None, names: Collection[str]) -> bool:
    """Whether the Host header (RFC 9110 section 7.2) names this service; the port may be a tunnel's."""
    if host is None:
        return False
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([A-Za-z0-9._-]{1,253}))(?::[0-9]{1,5})?", host)
    if match is None:
        return False
    return (match[1] or match[2]).lower().rstrip(".") in names


def origin_is_own(origin: str | None, fetch_site: str | None, scheme: str, host: str | None) -> bool:
    """Whether a request comes from our own page, or from no page at all (a program).

    `origin` and `fetch_site` are the headers Origin (RFC 6454) and Sec-Fetch-Site, None where not sent.
    """
    if fetch_site is not None and fetch_site not in ("same-origin", "none"):
        return False
    return origin is None or (host is not None and origin.lower() == f"{scheme}://{host}".lower())


CONNECTIONS = 64
"""The most connections; further ones are closed."""
FIRST_REQUEST_S = 10.0
"""A connection that sent no whole request by then is closed."""
ANSWER_TAKEN_S = 10.0
"""The time between two looks at what waits to be sent of an answer; where nothing of it went meanwhile, the
connection is aborted."""
KEEPALIVE_S = 30.0
RETRY_S = 5.0
"""The time between two tries to listen at an address that is taken."""
_SHUTDOWN_S = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpServer:
    """Serves `app` at `address`, with TLS where a context is given. Made once, started once."""

    def __init__(
        self,
        app: web.Application,
        address: ListenAddress,
        *,
        tls: ssl.SSLContext | None = None,
        connections: int = CONNECTIONS,
        first_request_s: float = FIRST_REQUEST_S,
        answer_taken_s: float = ANSWER_TAKEN_S,
    ) -> None:
        self.refused = 0
        """Connections closed because there were too many, or because their clients did not ask, or did not
        take the answer, in time."""
        self.address = address
        """Its own address."""
        self._tls = tls
        self._most = connections
        self._first_request_s = first_request_s
        self._server: asyncio.Server | None = None
        self._open: set[web.RequestHandler] = set()
        self._waiting: set[web.RequestHandler] = set()
        self._answer_taken_s = answer_taken_s
        self._answered: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        """The ends of the times in which the latest answers are to be taken."""
        app.middlewares.insert(0, self._note_request)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_aiohttp_logger(),
            handle_signals=False,
            keepalive_timeout=KEEPALIVE_S,
            shutdown_timeout=_SHUTDOWN_S,
        )

    @property
    def url(self) -> str:
        """The root of what is served."""
        return f"{'https' if self._tls else 'http'}://{self.address}/"

    @property
    def open_connections(self) -> int:
        """How many connections there are."""
        server = self._runner.server
        return len(server.connections) if server is not None else 0

    async def start(self) -> None:
        """Listen. Raises FatalError when that can't be done."""
        await self._runner.setup()
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._connection,
                str(self.address.address),
                self.address.port,
                ssl=self._tls,
                ssl_handshake_timeout=self._first_request_s if self._tls else None,
                reuse_address=True,
            )
        except OSError as error:
            await self._runner.cleanup()
            raise FatalError(self.address.refusal(error)) from None

    async def close(self) -> None:
        """Close every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._runner.cleanup()

    @web.middleware
    async def _note_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        client = request.protocol
        self._waiting.discard(client)
        if timer := self._answered.pop(client, None):
            timer.cancel()  # the answer before is taken: a connection has its requests one by one
        try:
            return await handler(request)
        finally:
            if request.transport is not None:
                self._look_later(client, request.transport, None)

    def _connection(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        assert server is not None  # noqa: S101 - set by setup()
        if len(server.connections) + len(self._waiting - set(server.connections)) >= self._most:
            self.refused += 1
            return _Refusal()
        handler = server()
        self._waiting.add(handler)
        asyncio.get_running_loop().call_later(self._first_request_s, self._end_waiting, handler)
        return handler

    def _end_waiting(self, handler: web.RequestHandler) -> None:
        if handler in self._waiting:
            self._waiting.discard(handler)
            self._abort(handler, handler.transport)

    def _look_later(
        self, handler: web.RequestHandler, transport: asyncio.Transport, waited: int | None
    ) -> None:
        # The handler forgets its transport when it closes it; what waits in there stays.
        self._answered[handler] = asyncio.get_running_loop().call_later(
            self._answer_taken_s, self._end_untaken, handler, transport, waited
        )

    def _end_untaken(
        self, handler: web.RequestHandler, transport: asyncio.Transport, waited: int | None
    ) -> None:
        """Abort a connection of which nothing was taken since `waited` bytes waited; None: the first look."""
        del self._answered[handler]
        waiting = transport.get_write_buffer_size()
        if waited is not None and waiting >= waited:
            self._abort(handler, transport)
        elif waiting:
            self._look_later(handler, transport, waiting)

    def _abort(self, handler: web.RequestHandler, transport: asyncio.Transport | None) -> None:
        if transport is not None:
            self.refused += 1
            handler.force_close()  # it forgets its transport
            transport.abort()


class PageServer:
    """A server that its service can do without: while the address is taken, it is tried again.

    `make` makes the server of each try; `part` logs, and names `key` of the configuration.
    """

    def __init__(self, make: Callable[[], HttpServer], part: str, key: str) -> None:
        self.problem: str | None = None
        """Why nothing is served now."""
        self._make = make
        self._log = get_logger(part)
        self._remedy = f"set {key}"
        self._server: HttpServer | None = None
        self._retrying: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to serve, now or later."""
        if not await self._try():
            self._retrying = asyncio.get_running_loop().create_task(self._retry())

    async def close(self) -> None:
        """Serve no more."""
        if self._retrying is not None:
            self._retrying.cancel()
        if self._server is not None:
            await self._server.close()

    async def _try(self) -> bool:
        server = self._make()
        try:
            await server.start()
        except FatalError as error:
            if self.problem is None:
                self._log.warning("not_listening", problem=str(error), remedy=self._remedy)
            self.problem = str(error)
            return False
        self._server, self.problem = server, None
        self._log.info("listening", page=server.url)
        return True

    async def _retry(self) -> None:
        while True:
            await asyncio.sleep(RETRY_S)
            if await self._try():
                return


def one_page(path: str, content_type: str, page: Callable[[], bytes]) -> web.Application:
    """An application with nothing but the page at `path`: `page` makes it anew for each request."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=page(), headers={"Content-Type": content_type})

    app = web.Application()
    app.router.add_get(path, answer)
    return app


class _ServiceLog(logging.Handler):
    """Writes aiohttp's errors to the service's own log, which is limited.

    A request that is no HTTP is its client's fault: aiohttp would log a traceback for each.
    """

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        if not isinstance(problem, HttpProcessingError):
            words = record.getMessage() if problem is None else repr(problem)
            get_logger("http").error("page_failed", problem=words, exc_info=problem)


def _aiohttp_logger() -> logging.Logger:
    logger = logging.Logger("http", logging.WARNING)
    logger.addHandler(_ServiceLog())
    return logger


class _Refusal(asyncio.Protocol):
    """Ends a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
