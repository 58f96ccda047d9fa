"""Holds a TCP connection to the server: a dying process is seen at once, by its closed connection.

    CONNECTING --connected--> HELD --closed by the server--> CONNECTING at once
    CONNECTING --refused--> dead, tried again soon
    CONNECTING --host or network unreachable, no answer within the timeout--> failed, tried again

Servers close idle connections as they please, so a closed connection says nothing by itself: the next
connect does. While a server of several processes dies, its listening socket may go last: a connect still
succeeds, and is closed a moment later. So reconnecting starts at once and slows down when it doesn't last.
"""

import asyncio
import random
import socket
import time
from typing import Final

from ppe_agent.checks.base import FAST_RECHECK_MS, Report, Timing, alive, pause_ms
from ppe_agent.checks.tcp import Address, connect

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
            outcome, connection = await connect(self._address, self._port, self._timing.timeout_ms)
            soon = report(outcome)
            if connection is None:
                quick_closes = 0
                await asyncio.sleep(pause_ms(self._timing, soon, random.random()) / 1000)  # noqa: S311 - no secret
                continue
            try:
                while soon and await _stays_open(connection, FAST_RECHECK_MS / 1000):
                    soon = report(alive("connection held"))
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
