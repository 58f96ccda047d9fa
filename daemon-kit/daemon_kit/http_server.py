"""Serves an aiohttp application at one address, bounded: connections, and the time to the first request.

Wants the package aiohttp, which not every service here needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from daemon_kit.addresses import ListenAddress
from daemon_kit.errors import FatalError

CONNECTIONS = 64
"""At once; more are closed at once."""
FIRST_REQUEST_S = 10.0
"""A connection that sent no whole request by then is closed."""
KEEPALIVE_S = 30.0
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
    ) -> None:
        self.refused = 0
        """Connections closed because there were too many, or because they did not ask in time."""
        self._address = address
        self._tls = tls
        self._most = connections
        self._first_request_s = first_request_s
        self._server: asyncio.Server | None = None
        self._open: set[web.RequestHandler] = set()
        self._waiting: set[web.RequestHandler] = set()
        app.middlewares.insert(0, self._note_request)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEPALIVE_S,
            shutdown_timeout=_SHUTDOWN_S,
        )

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
                str(self._address.address),
                self._address.port,
                ssl=self._tls,
                reuse_address=True,
            )
        except OSError as error:
            await self._runner.cleanup()
            raise FatalError(f"can't listen at {self._address}: {error.strerror or error}") from None

    async def close(self) -> None:
        """Close every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._runner.cleanup()

    @web.middleware
    async def _note_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._waiting.discard(request.protocol)
        return await handler(request)

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
            if handler.transport is not None:
                self.refused += 1
                handler.force_close()
                with contextlib.suppress(OSError):
                    handler.transport.abort()


class _Refusal(asyncio.Protocol):
    """Ends a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
