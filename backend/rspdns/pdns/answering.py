"""The answers have a thread of their own: whatever the registrars say, and however long it takes to work that
out, PowerDNS is answered from the last snapshot.

The connector, the responder and the store of keys live in this thread's event loop alone. All else
(following, belief, building, purging, the admin API) lives in the main one. Between the two go the next
snapshot (`AnsweringThread.do`) and what was looked up (`LookedUp`).

`make_connector` makes the connector that the configuration names: there PowerDNS asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar
from typing import Protocol as Interface

from daemon_kit.addresses import ListenAddress
from daemon_kit.errors import FatalError

from rspdns.dnssec.store import DnssecStore
from rspdns.pdns.connector_unix import UnixConnector, unix_path
from rspdns.pdns.responder import PdnsResponder

HTTP = "http:"


class Connector(Interface):
    """The part of a connector that the service needs."""

    async def start(self) -> None: ...  # noqa: D102 - the connectors say it
    async def close(self) -> None: ...  # noqa: D102 - the connectors say it
    @property
    def open_connections(self) -> int: ...  # noqa: D102 - the connectors say it


def make_connector(connector: str, responder: PdnsResponder, store: DnssecStore) -> Connector:
    """Return the connector "unix:/path" or "http:HOST:PORT".

    Raises FatalError for signed zones over HTTP: anybody on the host could have the keys.
    """
    path = unix_path(connector)
    if path is not None:
        return UnixConnector(path, responder.respond)
    if signed := store.signed_zones():
        raise FatalError(
            f"pdns.connector {connector!r}: the zone {signed[0]} is signed, and keys are handed out over the "
            f"unix connector only; use it, or end the signing there (pdnsutil disable-dnssec {signed[0]})"
        )
    from rspdns.pdns.connector_http import HttpConnector

    return HttpConnector(ListenAddress.parse(connector.removeprefix(HTTP)), responder)


TOLD_EVERY_S = 0.005
"""Least time between two reports to the main loop about which pools were looked up."""
_MOST_NOTED = 10_000
"""Look-ups that wait for the main loop; above it the oldest are forgotten."""

T = TypeVar("T")


class AnsweringThread:
    """Runs `connector` in a thread, in an event loop of the kind that `start()` is called in."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Begin to answer. Raises what the connector's `start()` raises."""
        loop = self._loop = type(asyncio.get_running_loop())()
        self._thread = threading.Thread(target=loop.run_forever, name="answers", daemon=True)
        self._thread.start()
        try:
            await self._wait(self._connector.start())
        except BaseException:
            await self._end()
            raise

    async def close(self) -> None:
        """Answer no more, and end the thread."""
        if self._loop is not None:
            try:
                await self._wait(self._connector.close())
            finally:
                await self._end()

    def do(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do something short between two answers, and call `then` with its result in the loop of the caller.

        The caller waits for neither. Work that is given one after the other is done in this order. An
        exception of `work` is raised in the loop of the caller.
        """
        if self._loop is None:
            then(work())
            return
        done: Future[T] = Future()
        caller = asyncio.get_running_loop()

        def run() -> None:
            try:
                done.set_result(work())
            except Exception as problem:
                done.set_exception(problem)
            with contextlib.suppress(RuntimeError):  # the caller's loop has ended
                caller.call_soon_threadsafe(lambda: then(done.result()))

        self._loop.call_soon_threadsafe(run)

    @property
    def open_connections(self) -> int:
        """How many connections there are."""
        return self._connector.open_connections

    async def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None  # noqa: S101 - started
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _end(self) -> None:
        loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join)
            loop.close()


class LookedUp:
    """Carries the pools that were looked up from the answering thread to the main loop, a few at a time.

    There is no lock: the main loop never waits until the answering thread has its turn again.
    """

    def __init__(self, take: Callable[[Iterable[str]], None]) -> None:
        self._take = take
        self._noted: deque[Iterable[str]] = deque(maxlen=_MOST_NOTED)
        self._is_told = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin; must run in the main event loop."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Carry nothing any more."""
        self._loop = None

    def note(self, handles: Iterable[str]) -> None:
        """These were looked up. May be called in any thread."""
        self._noted.append(handles)
        loop = self._loop
        if loop is not None and not self._is_told:
            self._is_told = True
            loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        handles: set[str] = set()
        while self._noted:
            handles.update(self._noted.popleft())
        if self._loop is None:
            return
        if handles:
            self._loop.call_later(TOLD_EVERY_S, self._hand_over)
            self._take(handles)
            return
        self._is_told = False
        if self._noted:  # noted meanwhile, when it seemed that this would be called again
            self._is_told = True
            self._loop.call_soon(self._hand_over)
