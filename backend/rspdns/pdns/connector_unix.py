"""PowerDNS's unix connector: one JSON request per line in, one reply per line out.

The socket may be one that systemd holds for us (sd_listen_fds(3)). systemd also keeps the connections that a
former process of this service stored there (`daemon_kit.notify`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import cast

from daemon_kit import notify
from daemon_kit.logs import get_logger
from daemon_kit.unix_listener import SOCKET_STAYS, listen_at

from rspdns.pdns.responder import FAILURE

_FIRST_FD = 3
_MOST_FDS = 1024
CONNECTION = "pdns-connection"
"""The name under which connections are stored."""


def inherited_listener(path: Path, environment: Mapping[str, str] = os.environ) -> socket.socket | None:
    """Return the listening socket at `path` that this process was started with, None if there is none."""
    for fd, name in _inherited(environment):
        if name == CONNECTION:
            continue
        try:
            copy = os.dup(fd)
        except OSError:
            continue
        try:
            candidate = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            continue
        if candidate.family == socket.AF_UNIX and candidate.getsockname() == str(path):
            candidate.setblocking(False)
            return candidate
        candidate.close()
    return None


def inherited_connections(environment: Mapping[str, str] = os.environ) -> list[socket.socket]:
    """Return the connections that a former process of this service stored; they are the caller's, once."""
    descriptors = []
    for fd, name in _inherited(environment):
        if name != CONNECTION:
            continue
        try:
            connection = socket.socket(fileno=fd)
        except OSError:  # not there, or no socket
            continue
        connection.set_inheritable(False)
        connection.setblocking(False)
        descriptors.append(connection)
    return descriptors


def _inherited(environment: Mapping[str, str]) -> list[tuple[int, str]]:
    """The descriptors this process was started with, and their names."""
    count = environment.get("LISTEN_FDS", "")
    if environment.get("LISTEN_PID") != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return []
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    number = min(int(count), _MOST_FDS)
    names += [""] * (number - len(names))
    return [(_FIRST_FD + index, names[index]) for index in range(number)]


MAX_REQUEST_BYTES = 64 * 1024
MAX_CONNECTIONS = 512
"""PowerDNS has one for each distributor thread, and some more."""
SOCKET_MODE = 0o660
CLOSE_TIMEOUT_S = 1.0
"""How long the last answers may take, and systemd's taking of the connections."""

ReplyBytes = bytes | Awaitable[bytes]
Respond = Callable[[bytes], ReplyBytes]


class UnixConnector:
    """Answers at the unix socket `path`.

    `respond` takes a line and returns the reply, or an awaitable of it, and must not raise. The lines behind
    one that is being answered wait.

    A listening socket inherited from systemd is used when it is the one at `path`. A request above 64 KiB
    ends its connection; PowerDNS connects again by itself.

    PowerDNS notices a broken connection by its next question only, and answers that SERVFAIL. So systemd
    keeps each connection (its file descriptor store), also when this process is killed, and hands it to the
    next process: questions asked meanwhile wait in it.
    """

    def __init__(self, path: str | Path, respond: Respond, *, mode: int = SOCKET_MODE) -> None:
        self._path = Path(path)
        self._respond = respond
        self._mode = mode
        self._server: asyncio.Server | None = None
        self._is_inherited = False
        self.connections: dict[_PdnsConnection, None] = {}  # the oldest first

    @property
    def open_connections(self) -> int:
        """How many connections there are."""
        return len(self.connections)

    async def start(self) -> None:
        """Listen. Raises FatalError when the socket can't be made."""
        listener = inherited_listener(self._path)
        self._is_inherited = listener is not None
        if listener is None:
            listener = listen_at(self._path, self._mode, "the socket")
        loop = asyncio.get_running_loop()
        inherited = inherited_connections()
        if inherited:
            get_logger("connector").info("connections_inherited", connections=len(inherited))
        for connection in inherited:
            await loop.connect_accepted_socket(lambda: self._connection(is_stored=True), connection)
        self._server = await loop.create_unix_server(self._connection, sock=listener, **SOCKET_STAYS)

    async def close(self) -> None:
        """Answer no more; remove the socket unless it is systemd's, and leave it the connections.

        Requests that were read are answered, unless it takes more than `CLOSE_TIMEOUT_S`.
        """
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if not self._is_inherited:
            with contextlib.suppress(OSError):
                self._path.unlink()
        for connection in self.connections:
            connection.take_no_more()
        end_s = time.monotonic() + CLOSE_TIMEOUT_S
        while (  # noqa: ASYNC110 - seldom, and not for long
            any(connection.is_busy for connection in self.connections) and time.monotonic() < end_s
        ):
            await asyncio.sleep(0.005)
        if any(connection.is_stored for connection in self.connections):
            await asyncio.to_thread(notify.barrier, CLOSE_TIMEOUT_S)
        for connection in list(self.connections):
            connection.leave()

    def _connection(self, *, is_stored: bool = False) -> _PdnsConnection:
        return _PdnsConnection(self._respond, self.connections, is_stored=is_stored)


class _PdnsConnection(asyncio.Protocol):
    def __init__(
        self, respond: Respond, connections: dict[_PdnsConnection, None], *, is_stored: bool
    ) -> None:
        self._respond = respond
        self._connections = connections
        self.is_stored = is_stored
        self.has_asked = is_stored
        """Whether a whole request came, ever; what systemd kept is PowerDNS's."""
        self._is_leaving = False
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._waiting: list[bytes] = []
        self._answering: asyncio.Task[None] | None = None
        self._is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's has all of it without being derived from it.
        self._transport = made = cast(asyncio.Transport, transport)
        if len(self._connections) >= MAX_CONNECTIONS and not self._make_room():
            get_logger("connector").warning("connection_refused", limit=MAX_CONNECTIONS)
            made.abort()
            return
        self._connections[self] = None
        self.is_stored = self.is_stored or notify.store(CONNECTION, self._fileno)

    def _make_room(self) -> bool:
        """End the oldest connection that never asked anything: idle ones must not keep PowerDNS out."""
        idle = next((connection for connection in self._connections if not connection.has_asked), None)
        if idle is None:
            return False
        get_logger("connector").warning("idle_connection_ended", limit=MAX_CONNECTIONS)
        self._connections.pop(idle)
        if idle._transport is not None:
            idle._transport.abort()
        return True

    @property
    def _fileno(self) -> int:
        number: int = cast(asyncio.Transport, self._transport).get_extra_info("socket").fileno()
        return number

    def connection_lost(self, problem: Exception | None) -> None:
        if self.is_stored:
            self._shut_down()
        self._connections.pop(self, None)
        self._transport = None
        self._waiting.clear()

    def _shut_down(self) -> None:
        """Tell the other end, which closing does not: systemd has a copy, and drops it by this."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._fileno)) as copy:
            copy.shutdown(socket.SHUT_RDWR)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.has_asked = self.has_asked or bool(lines)
        if self._answering is not None or self._waiting:
            self._waiting += lines
        else:
            self._answer(lines)
        if len(self._rest) > MAX_REQUEST_BYTES:
            get_logger("connector").warning("request_too_long", limit=MAX_REQUEST_BYTES)
            self._transport.write(FAILURE)
            self.close()

    def _answer(self, lines: list[bytes]) -> None:
        for index, line in enumerate(lines):
            if self._is_full:
                self._waiting = lines[index:]
                return
            reply = self._respond(line)
            if not isinstance(reply, bytes):
                self._waiting = lines[index + 1 :]
                self._answering = asyncio.ensure_future(self._answer_later(reply))
                return
            if self._transport is not None:
                self._transport.write(reply)

    async def _answer_later(self, reply: Awaitable[bytes]) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
        text = await reply
        self._answering = None
        if self._transport is not None:
            self._transport.write(text)
            self._go_on()

    def pause_writing(self) -> None:
        """The client does not read its replies: answer and take no more requests of it."""
        self._is_full = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self._go_on()

    def _go_on(self) -> None:
        """Answer what waits, and take more requests, unless something still stands against it."""
        if self._answering is None and not self._is_full and self._waiting:
            waiting, self._waiting = self._waiting, []
            self._answer(waiting)
        is_free = self._answering is None and not self._is_full and not self._is_leaving
        if is_free and self._transport is not None:
            self._transport.resume_reading()

    @property
    def is_busy(self) -> bool:
        """Whether something that was read is not answered yet, or the answer not yet on its way."""
        unsent = self._transport is not None and self._transport.get_write_buffer_size() > 0
        return unsent or self._answering is not None or bool(self._waiting)

    def take_no_more(self) -> None:
        """Read nothing more."""
        self._is_leaving = True
        if self._transport is not None:
            self._transport.pause_reading()

    def leave(self) -> None:
        """Leave the connection to systemd, if it keeps it and nothing is owed to PowerDNS; else end it."""
        if self.is_stored and not self.is_busy and not self._rest:
            self.is_stored = False  # so that it is not shut down
        self.close()

    def close(self) -> None:
        """End the connection after what is written."""
        if self._transport is not None:
            self._transport.close()


def unix_path(connector: str) -> Path | None:
    """Return the path of "unix:/path", None for another kind of connector."""
    kind, _, path = connector.partition(":")
    return Path(path) if kind == "unix" else None
