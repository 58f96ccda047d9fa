"""Events as they happen: server-sent events (the WHATWG HTML standard's `text/event-stream`)."""

from __future__ import annotations

import asyncio

import orjson
from aiohttp import web

from rspdns.admin.guard import RequestRefused
from rspdns.event_log import EventLog, Listener, Logged

STREAMS = 16
"""Listeners at once."""
PING_S = 15.0
WRITE_TIMEOUT_S = 10.0
"""How long a client may take nothing before it is disconnected."""
RETRY_MS = 1000


class Streams:
    """Serves the events of `log` to a bounded number of listeners."""

    def __init__(self, log: EventLog) -> None:
        self.open = 0
        self.lost = 0
        """Listeners let go because they were too slow."""
        self._log = log
        self._ending = asyncio.Event()

    def close(self) -> None:
        """End all streams."""
        self._ending.set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one request with events until the client goes, or is too slow."""
        if self.open >= STREAMS:
            raise RequestRefused(503, "streams", f"{STREAMS} clients listen already", **{"Retry-After": "5"})
        after = request.headers.get("Last-Event-ID", "")
        seen = int(after) if after.isascii() and after.isdigit() and len(after) < 16 else None
        if seen is not None and seen > self._log.last_number:
            seen = 0  # numbers of a former life of this service
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        self.open += 1
        try:
            with self._log.listening() as listener:
                await response.prepare(request)
                missed = self._log.since(seen) if seen is not None else []
                lines = "".join(map(_text, missed))
                await self._write(response, f"retry: {RETRY_MS}\n\n{lines}")
                await self._pass_on(response, listener)
        except (ConnectionError, TimeoutError):
            self.lost += 1
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.open -= 1
        return response

    async def _pass_on(self, response: web.StreamResponse, listener: Listener) -> None:
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            while not self._ending.is_set() and not listener.lost:
                waiting = asyncio.ensure_future(listener.next())
                done, _ = await asyncio.wait(
                    {waiting, ending}, timeout=PING_S, return_when=asyncio.FIRST_COMPLETED
                )
                if waiting in done:
                    await self._write(response, _text(waiting.result()))
                    continue
                waiting.cancel()
                if not done:
                    await self._write(response, ": still here\n\n")
        finally:
            ending.cancel()
        if listener.lost:
            self.lost += 1

    async def _write(self, response: web.StreamResponse, text: str) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await response.write(text.encode())


def _text(logged: Logged) -> str:
    """One event; told again, under the same number, once it has converged."""
    kind = "change" if logged.converged_ms is None else "converged"
    return f"id: {logged.number}\nevent: {kind}\ndata: {orjson.dumps(logged.status()).decode()}\n\n"
