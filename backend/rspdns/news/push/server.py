"""The connections of DNS Push Notifications, and the backend that is asked for records. Decisions are the
session's."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import random
import resource
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from daemon_kit import notify
from daemon_kit.control import MAX_LINE_BYTES, ControlError, ask
from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger
from dns.rcode import Rcode

from rspdns.admin.access import Access
from rspdns.news.configuration import PushConfig
from rspdns.news.push.records import NameAnswer, PushedSet, RecordStore
from rspdns.news.push.session import PushSession, PushState
from rspdns.next_change import WAIT_S

JOIN_S = 0.02
"""Changes within this time after a push come together in the next one."""
ASK_AGAIN_S = 0.5
HANDSHAKE_S = 10.0
UNREAD_S = 30.0
"""How long a client may leave what is sent to it unread."""
SURPLUS_SESSIONS = 100
"""The connections beyond the limit that are told to come again; further ones are closed."""
LOOK_FOR_CERTIFICATE_S = 10.0
BACKLOG = 1024
END_WITHIN_S = 5.0
OTHER_FILES = 200
"""The descriptors of this process that are no client's of DNS Push."""
REFUSED_EVERY_S = 60.0
"""Refused clients are logged at most this often."""
LATEST_RETURN_MS = 10_000
"""The clients of a server that stops come back within this time, each at a time of its own."""
_MOST_NAMES_BYTES = MAX_LINE_BYTES // 2
_log = get_logger("push")


class PushServer:
    """Serves clients by `config`. `access` has the certificate, `control` is the backend's control socket."""

    def __init__(self, config: PushConfig, access: Access, control: str) -> None:
        self._config = config
        self._access = access
        self._control = control
        self._store = RecordStore()
        self._connections: set[_Connection] = set()
        self._by_host: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._asking = asyncio.Lock()
        self._missing = asyncio.Event()
        self._ready = asyncio.Event()
        """Set once the backend has answered; clients wait for it."""
        self._all_ended = asyncio.Event()
        self._has_backend = True
        self._refused_s = -math.inf
        """When refused clients were logged last."""
        self._tls: ssl.SSLContext

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises FatalError."""
        self._raise_limit()
        listener = self._listen()
        async with asyncio.TaskGroup() as tasks:
            parts = [
                tasks.create_task(self._follow()),
                tasks.create_task(self._find_missing()),
                tasks.create_task(self._accept(listener)),
                tasks.create_task(self._renew_certificate()),
            ]
            try:
                await stop.wait()
            finally:
                for part in parts:
                    part.cancel()
                await asyncio.gather(*parts, return_exceptions=True)
                listener.close()
                await self._end_all()

    @property
    def status(self) -> str:
        """The sessions, for systemd."""
        subscriptions = sum(connection.session.subscriptions for connection in self._connections)
        counts = self._counts
        return (
            f"{len(self._connections)} push clients, {subscriptions} subscriptions; "
            f"{counts['pushes']} pushes, {counts['refused']} clients refused, {counts['aborted']} cut off"
        )

    def _raise_limit(self) -> None:
        """Let this process have a descriptor for each session. Raises FatalError."""
        needed = self._config.sessions + SURPLUS_SESSIONS + OTHER_FILES
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < needed:
            raise FatalError(
                f"news.push.sessions: {self._config.sessions} sessions need {needed} open files, and this "
                f"process may have {hard}; raise that (LimitNOFILE= of the unit, ulimit -Hn), or allow fewer"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))

    def _listen(self) -> socket.socket:
        address = self._config.address
        try:
            tls = self._access.tls()
            assert tls is not None  # noqa: S101 - the configuration names a certificate
            tls.set_alpn_protocols(["dot"])
            self._tls = tls
        except OSError as problem:
            raise FatalError(f"news.push.tls_certificate can't be used: {problem}") from None
        family = socket.AF_INET6 if address.address.version == 6 else socket.AF_INET
        listener = socket.socket(family)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((str(address.address), address.port))
            listener.listen(BACKLOG)
        except OSError as problem:
            listener.close()
            raise FatalError(f"news.push.listen: {address.refusal(problem)}") from None
        listener.setblocking(False)
        return listener

    async def _follow(self) -> None:
        """Tell the sessions of each change."""
        cursor: dict[str, Any] = {}
        while True:
            try:
                answer = await self._ask((), wait_s=WAIT_S, **cursor)
                changed = answer["changed"]
                is_whole = changed is None or answer["life"] != cursor.get("life")
                await self._refresh(self._store.watched if is_whole else self._store.concerned(changed))
                cursor = {"life": answer["life"], "after": answer["number"]}
            except ControlError as problem:
                if self._has_backend:
                    _log.warning("push_interrupted", problem=str(problem))
                self._has_backend = False
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            if not self._has_backend:
                _log.info("push_goes_on")
            self._has_backend = True
            if not self._ready.is_set():
                self._ready.set()
                notify.sd_notify("READY=1")
                _log.info("push_ready", listen=self._config.listen)
            await asyncio.sleep(JOIN_S)

    async def _find_missing(self) -> None:
        """Ask for the names that are wanted for the first time."""
        while True:
            await self._missing.wait()
            self._missing.clear()
            names = list(self._store.missing)
            self._store.missing.clear()
            try:
                await self._refresh(names)
            except ControlError:
                unknown = [name for name in names if self._store.answer(name) is None]
                self._take(dict.fromkeys(unknown, Rcode.SERVFAIL))

    async def _ask(self, names: Collection[str], **keys: Any) -> dict[str, Any]:
        return await ask(self._control, "records", names=list(names), timeout_s=WAIT_S + 5.0, **keys)

    async def _refresh(self, names: Iterable[str]) -> None:
        """Ask for these names, and tell what is new. Answers are taken in the order of the questions. Raises
        ControlError."""
        async with self._asking:
            for some in list(_in_lines(names)):
                answer = await self._ask(some)
                self._take({name: _read(records) for name, records in answer["records"].items()})

    def _take(self, answers: Mapping[str, NameAnswer]) -> None:
        watchers = {watcher for name, answer in answers.items() for watcher in self._store.take(name, answer)}
        for connection in [each for each in self._connections if each.session in watchers]:
            connection.advance()

    async def _accept(self, listener: socket.socket) -> None:
        await self._ready.wait()
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as handshakes:
            while True:
                try:
                    client, peer = await loop.sock_accept(listener)
                except OSError:  # no descriptor is left, or the client is gone
                    await asyncio.sleep(0.1)
                    continue
                connection = self._connection(str(peer[0]))
                if connection is None:
                    client.close()
                else:
                    handshakes.create_task(self._shake_hands(client, connection))

    def _connection(self, host: str) -> _Connection | None:
        """Make the connection of a client at this address; None: there are too many."""
        config, count = self._config, len(self._connections)
        is_surplus = count >= config.sessions
        is_greedy = self._by_host[host] >= config.sessions_per_address
        if is_surplus or is_greedy:
            self._note_refused(host, "sessions_per_address" if is_greedy else "sessions")
        if is_greedy or count >= config.sessions + SURPLUS_SESSIONS:
            return None
        session = PushSession(self._store, time.monotonic(), config.subscriptions, is_surplus=is_surplus)
        connection = _Connection(self, session, host)
        self._connections.add(connection)
        self._by_host[host] += 1
        return connection

    def _note_refused(self, host: str, limit: str) -> None:
        self._counts["refused"] += 1
        if time.monotonic() >= self._refused_s + REFUSED_EVERY_S:
            self._refused_s = time.monotonic()
            most = getattr(self._config, limit)
            _log.warning("push_refused", host=host, limit=f"news.push.{limit}", most=most)

    async def _shake_hands(self, client: socket.socket, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):
                await loop.connect_accepted_socket(
                    lambda: connection, client, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S
                )
        finally:
            if not connection.is_made:
                self.ended(connection)

    def advanced(self, pushes: int) -> None:
        """A session went on, and told changes so many times."""
        self._counts["pushes"] += pushes
        if self._store.missing:
            self._missing.set()

    def ended(self, connection: _Connection) -> None:
        """A connection is closed."""
        if connection in self._connections:
            self._connections.discard(connection)
            self._counts["aborted"] += connection.session.state is PushState.ABORTED
            self._by_host[connection.host] -= 1
            if not self._by_host[connection.host]:
                del self._by_host[connection.host]
            connection.session.close()
            if not self._connections:
                self._all_ended.set()

    async def _end_all(self) -> None:
        """Ask every client to come again, and wait until they closed."""
        for connection in list(self._connections):
            connection.end(Rcode.NOERROR, random.randint(1000, LATEST_RETURN_MS))  # noqa: S311 - no secret
        if self._connections:
            self._all_ended.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_WITHIN_S):
                    await self._all_ended.wait()
        for connection in list(self._connections):
            connection.abort()

    async def _renew_certificate(self) -> None:
        """Use the certificate as its file is, for new connections."""
        files = [file for file in (self._access.certificate, self._access.key) if file is not None]
        before: list[tuple[int, int]] = []
        while True:
            with contextlib.suppress(OSError):
                now = [(file.stat().st_mtime_ns, file.stat().st_ino) for file in files]
                if before and now != before:
                    try:
                        self._access.load_certificate(self._tls)
                        _log.info("certificate_read", file=str(files[0]))
                    except OSError as problem:
                        _log.warning("certificate_not_read", problem=str(problem))
                before = now
            await asyncio.sleep(LOOK_FOR_CERTIFICATE_S)


class _Connection(asyncio.Protocol):
    """The bytes of one client, and the time."""

    def __init__(self, server: PushServer, session: PushSession, host: str) -> None:
        self.session = session
        self.host = host
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._pushes = 0
        self._is_unread = False
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    @property
    def is_made(self) -> bool:
        """Whether the handshake is done."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        self._transport = cast(asyncio.Transport, transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """The client sent something."""
        self.session.receive(data, time.monotonic())
        self.advance()

    def pause_writing(self) -> None:
        """The client does not read: it is not heard either until it does."""
        self._is_unread = True
        loop = asyncio.get_running_loop()
        self._unread_timer = loop.call_later(UNREAD_S, self.abort)
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client took what was sent."""
        self._is_unread = False
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self.advance)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        for timer in (self._timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        self._server.ended(self)

    def advance(self) -> None:
        """Send what the session has to say, as long as the client reads."""
        transport, session = self._transport, self.session
        if transport is None:
            return
        while not self._is_unread and not transport.is_closing():
            session.proceed(time.monotonic())
            output = session.take_output()
            if not output:
                break
            transport.write(output)
        self._server.advanced(session.pushes - self._pushes)
        self._pushes = session.pushes
        if session.state is PushState.ABORTED:
            self.abort()
        elif self._timer is not None and session.deadline_s < self._timer.when():
            self._wait()

    def end(self, rcode: Rcode, retry_ms: int) -> None:
        """Ask the client to close."""
        self.session.end(rcode, retry_ms, time.monotonic())
        if self._transport is not None:
            self._transport.write(self.session.take_output())
        if self._transport is None or self.session.state is PushState.ABORTED:
            self.abort()
        else:
            self._wait()

    def abort(self) -> None:
        """Reset the connection, as RFC 8490 section 5.3 has it."""
        transport = self._transport
        if transport is not None:
            connected = transport.get_extra_info("socket")
            if connected is not None:
                with contextlib.suppress(OSError):
                    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()

    def _wait(self) -> None:
        """Come back when the session has something to do."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, self.session.deadline_s - time.monotonic()), self._expire)

    def _expire(self) -> None:
        self.session.expire(time.monotonic())
        if self.session.state is PushState.ABORTED:
            self.abort()
        else:
            self._wait()


def _in_lines(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield the names in lists that fit into a request each."""
    some: list[str] = []
    size = 0
    for name in names:
        size += 2 * len(name) + 4  # a backslash is two in JSON
        if size > _MOST_NAMES_BYTES and some:
            yield some
            some, size = [], 2 * len(name) + 4
        some.append(name)
    if some:
        yield some


def _read(told: int | list[list[Any]]) -> NameAnswer:
    """Read what the backend tells of a name."""
    if isinstance(told, int):
        return Rcode(told)
    sets: dict[int, tuple[int, set[bytes]]] = {}
    for number, ttl, data in told:
        _, known = sets.get(number, (0, set()))
        sets[number] = ttl, known | {base64.b64decode(data)}
    return {number: PushedSet(ttl, frozenset(data)) for number, (ttl, data) in sets.items()}
