"""Checks by TCP connections.

`TcpCheck` connects and closes at once: somebody listens, and the kernel at least is alive. `TcpHoldCheck`
holds a connection to the server: a dying process is seen at once, by its closed connection.

    CONNECTING --connected--> HELD --closed by the server--> CONNECTING at once
    CONNECTING --refused--> dead, tried again soon
    CONNECTING --host or network unreachable, no answer within the timeout--> failed, tried again

Servers close idle connections as they please, so a closed connection says nothing by itself: the next
connect does. While a server of several processes dies, its listening socket may go last: a connect still
succeeds, and is closed a moment later. So reconnecting starts at once and slows down when it doesn't last.
"""

import asyncio
import errno
import random
import socket
import struct
import time
from typing import Any, Final

from daemon_kit.finding import Finding, Life, of_error

from ppe_agent.addresses import Address, family_of
from ppe_agent.checks.base import (
    FAST_RECHECK_MS,
    PeriodicCheck,
    Report,
    Timing,
    pause_ms,
)

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class OutgoingSocket(socket.socket):
    """A socket that takes a connection with itself (RFC 9293, 3.5: simultaneous open) for a refused one.

    If nothing listens on a port that the kernel also gives to clients, one connect in some thousands gets
    that very port for its own end, and finds itself.
    """

    def connect(self, address: Any, /) -> None:
        """Connect. Raises OSError."""
        super().connect(address)
        if self._is_with_itself():
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connected with itself")

    def getsockopt(self, *arguments: Any) -> Any:
        """Return an option; the error is where event loops learn how a connect went."""
        value = super().getsockopt(*arguments)
        if arguments == (socket.SOL_SOCKET, socket.SO_ERROR) and value == 0 and self._is_with_itself():
            return errno.ECONNREFUSED
        return value

    def _is_with_itself(self) -> bool:
        try:
            if self.getsockname() != self.getpeername():
                return False
        except OSError:
            return False
        # Closed in the ordinary way it would keep the server from its port for a minute (TIME-WAIT).
        self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        return True


class TcpCheck(PeriodicCheck):
    """Connects to `address`:`port` again and again."""

    kind = "tcp"

    def __init__(self, address: Address, port: int, timing: Timing) -> None:
        super().__init__(f"port {port}", timing)
        self._address = address
        self._port = port

    async def attempt(self) -> Finding:
        """Connect once."""
        finding, connection = await connect(self._address, self._port, self._timing.timeout_ms)
        if connection is None:
            return finding
        connection.close()
        return Finding(Life.ALIVE, "accepts connections")


async def connect(address: Address, port: int, timeout_ms: int) -> tuple[Finding, socket.socket | None]:
    """Connect over TCP; return what that tells and, when it went well, the connection."""
    try:
        connection = OutgoingSocket(
            family_of(address), socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        )
    except OSError as error:
        return of_error(error, "this host gives no socket"), None
    target = f"port {port}"
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await asyncio.get_running_loop().sock_connect(connection, (str(address), port))
    except TimeoutError:
        connection.close()
        return Finding(Life.SILENT, f"no connection to {target}", timeout_ms), None
    except OSError as error:
        connection.close()
        return of_error(error, target), None
    except BaseException:
        connection.close()
        raise
    return Finding(Life.ALIVE, "connection held"), connection


# Delays before reconnecting when one connection after the other is closed quickly.
_RECONNECT_DELAYS_MS: Final = (0, 0, 1, 2, 5, 10, 20, 50, 100)
_READ_BYTES: Final = 4096


class TcpHoldCheck:
    """Keeps one TCP connection to `address`:`port`."""

    kind = "tcp-hold"

    def __init__(self, address: Address, port: int, timing: Timing) -> None:
        self.target = f"port {port}"
        self._port = port
        self._address = address
        self._timing = timing

    async def run(self, report: Report) -> None:
        """Connect, hold, reconnect, for ever."""
        quick_closes = 0
        while True:
            started_s = time.monotonic()
            finding, connection = await connect(self._address, self._port, self._timing.timeout_ms)
            soon = report(finding)
            if connection is None:
                quick_closes = 0
                await asyncio.sleep(pause_ms(self._timing, soon, random.random()) / 1000)  # noqa: S311 - no secret
                continue
            try:
                while soon and await _stays_open(connection, FAST_RECHECK_MS / 1000):
                    soon = report(Finding(Life.ALIVE, "connection held"))
                await _closed(connection)
            finally:
                connection.close()
            held_ms = (time.monotonic() - started_s) * 1000
            quick_closes = quick_closes + 1 if held_ms < self._timing.interval_ms else 0
            await asyncio.sleep(reconnect_delay_ms(quick_closes, self._timing.interval_ms) / 1000)


def reconnect_delay_ms(quick_closes: int, interval_ms: int) -> int:
    """Return how long to wait after `quick_closes` connections in a row that did not last `interval_ms`."""
    if quick_closes < len(_RECONNECT_DELAYS_MS):
        return min(_RECONNECT_DELAYS_MS[quick_closes], interval_ms)
    return interval_ms


async def _stays_open(connection: socket.socket, time_s: float) -> bool:
    """Tell whether the server leaves the connection open for `time_s`."""
    try:
        async with asyncio.timeout(time_s):
            await _closed(connection)
    except TimeoutError:
        return True
    return False


async def _closed(connection: socket.socket) -> None:
    """Return when the server closes the connection; what it sends is thrown away."""
    loop = asyncio.get_running_loop()
    data = b"anything"
    while data:
        try:
            data = await loop.sock_recv(connection, _READ_BYTES)
        except OSError:
            return
        await asyncio.sleep(0)  # a talkative server must not keep the loop from its other work
