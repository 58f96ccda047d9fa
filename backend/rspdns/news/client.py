"""The connections of a client of news, one at a time."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import struct
import time
from typing import Any

from daemon_kit.control import ControlError

from rspdns.news.message import MOST_REPLY_BYTES
from rspdns.news.poller import Poller

CONNECT_TIMEOUT_S = 3.0
_AT_ONCE = struct.pack("ii", 1, 0)
"""The connection is reset when it is closed: after the server has closed, no end keeps it (TIME_WAIT)."""


class PolledNews:
    """The changes of a pool as the server `host` tells them by news (`watch_command.ChangeSource`)."""

    def __init__(self, host: str, port: int, pool: str, key: bytes) -> None:
        self._host, self._port = host, port
        self._poller = Poller(pool, key)
        self._last: dict[str, Any] = {}

    def first(self) -> dict[str, Any]:
        """Return the pool as it is. Raises ControlError."""
        answer = self._step()
        if answer is None:
            raise ControlError(f"news of {self._host}: {self._poller.problem}")
        # Clients that began at the same time must not poll at the same time.
        time.sleep(random.random() * self._poller.every_s)  # noqa: S311 - no secret
        self._last = answer
        return answer

    def next(self, wait_s: float) -> dict[str, Any]:
        """Return the changes since the last answer once there are any, or none after `wait_s`.

        Raises ControlError when the server can't be reached.
        """
        end_s = time.monotonic() + wait_s
        while (at_s := self._poller.next(time.monotonic()).at_s) <= end_s:
            time.sleep(max(0.0, at_s - time.monotonic()))
            answer = self._step()
            if answer is not None:
                self._last = answer
                return answer
            if self._poller.problem is not None:
                raise ControlError(f"news of {self._host}: {self._poller.problem}")
        time.sleep(max(0.0, end_s - time.monotonic()))
        return {**self._last, "changes": [], "missed": False}

    def _step(self) -> dict[str, Any] | None:
        poll = self._poller.next(time.monotonic())
        try:
            data = exchange(self._host, self._port if poll.port is None else poll.port, poll.line)
        except ConnectionRefusedError:
            self._poller.refused(time.monotonic())
        except OSError as problem:
            self._poller.failed(time.monotonic(), problem.strerror or str(problem))
        else:
            return self._poller.received(time.monotonic(), data)
        return None


def exchange(host: str, port: int, line: bytes) -> bytes:
    """Connect, send `line`, and return all that comes until the server closes. Raises OSError."""
    data = bytearray()
    with socket.create_connection((host, port), CONNECT_TIMEOUT_S) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        end_s = time.monotonic() + CONNECT_TIMEOUT_S
        with contextlib.suppress(BrokenPipeError):  # refused before it was asked: the reply says why
            connection.sendall(line)
        while piece := connection.recv(64 * 1024):
            data += piece
            if len(data) > MOST_REPLY_BYTES or time.monotonic() > end_s:
                raise OSError(errno.EMSGSIZE, "the reply is too long, or takes too long")
    return bytes(data)
