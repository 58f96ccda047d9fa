"""Some thousand clients of one transport: `python -m ... TRANSPORT HOST PORT POOL KEY CLIENTS`.

It writes "ready" once all have subscribed; on SIGTERM, as JSON, when each client heard of each change.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import random
import resource
import selectors
import signal
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from rspdns.news import Poller, read_key

EVERY_S: Final = 1.0
_TIMEOUT_S: Final = 5.0
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_PIECE: Final = 256 * 1024


class Heard:
    """When the clients heard of the changes, by number; `ended` once SIGTERM came."""

    def __init__(self) -> None:
        self.at_s: dict[int, list[float]] = defaultdict(list)
        self.failures = 0
        self.ended = False

    def take(self, changes: list[dict[str, Any]]) -> int:
        """Note these changes of one client; return the last number."""
        now = time.monotonic()
        for change in changes:
            self.at_s[change["number"]].append(round(now, 4))
        return max((change["number"] for change in changes), default=0)


def exchange(address: tuple[str, int], line: bytes) -> bytes:
    """Connect, send, and return all until the other side closes. Raises OSError."""
    with socket.socket() as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(address)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        if line:
            connection.sendall(line)
        pieces = []
        while piece := connection.recv(_PIECE):
            pieces.append(piece)
    return b"".join(pieces)


class LightWeightClient:
    """A client of `rspdns news`, by the machine that `rspdns watch` has."""

    def __init__(self, address: tuple[str, int], pool: str, key: bytes, heard: Heard) -> None:
        self._address = address
        self._poller = Poller(pool, key)
        self._heard = heard

    def step(self) -> float:
        """Poll once; return when the next poll is due."""
        now = time.monotonic()
        poll = self._poller.next(now)
        host, port = self._address
        try:
            data = exchange((host, port if poll.port is None else poll.port), poll.line)
        except ConnectionRefusedError:
            self._poller.refused(now)
        except OSError as problem:
            self._heard.failures += 1
            self._poller.failed(now, str(problem))
        else:
            answer = self._poller.received(now, data)
            self._heard.failures += self._poller.problem is not None
            if answer is not None:
                self._heard.take(answer["changes"])
        return self._poller.next(now).at_s


class ShortPollClient:
    """A client that asks again and again."""

    def __init__(self, address: tuple[str, int], heard: Heard) -> None:
        self._address = address
        self._heard = heard
        self._after = 0

    def step(self) -> float:
        """Ask once; return when the next question is due."""
        began_s = time.monotonic()
        try:
            data = exchange(self._address, request_of("short", self._after))
            changes = json.loads(data.partition(b"\r\n\r\n")[2])["changes"]
            self._after = max(self._after, self._heard.take(changes))
        except (OSError, ValueError):
            self._heard.failures += 1
        return began_s + EVERY_S


def request_of(path: str, after: int) -> bytes:
    """The question of an HTTP client."""
    return f"GET /{path}?after={after} HTTP/1.1\r\nHost: news\r\nConnection: close\r\n\r\n".encode()


def run_in_turn(clients: Sequence[LightWeightClient | ShortPollClient], heard: Heard) -> None:
    """Let each client act when it is due. Their first polls are spread over the time between two."""
    first_s = time.monotonic()
    due = []
    for number, client in enumerate(clients):
        client.step()
        due.append((first_s + EVERY_S * random.random(), number))  # noqa: S311 - no secret
    heapq.heapify(due)
    print("ready", flush=True)
    while not heard.ended:
        at_s, number = due[0]
        time.sleep(max(0.0, min(0.1, at_s - time.monotonic())))
        if at_s <= time.monotonic():
            heapq.heapreplace(due, (clients[number].step(), number))


class HeldConnection:
    """A client with an open connection: a long poll, or server-sent events."""

    def __init__(
        self, address: tuple[str, int], path: str, heard: Heard, selector: selectors.BaseSelector
    ) -> None:
        self._address = address
        self._path = path
        self._heard = heard
        self._selector = selector
        self._after = 0
        self._data = b""
        self.connect()

    def connect(self) -> None:
        """Ask anew."""
        self._data = b""
        self._socket = socket.create_connection(self._address, _TIMEOUT_S)
        self._socket.sendall(request_of(self._path, self._after))
        self._socket.setblocking(False)
        self._selector.register(self._socket, selectors.EVENT_READ, self)

    def read(self) -> None:
        """Take what came."""
        try:
            piece = self._socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        self._data += piece
        if self._path == "events":
            *events, self._data = self._data.split(b"\n\n")
            for event in events:
                for line in event.splitlines():
                    if line.startswith(b"data: "):
                        self._take(line[6:])
        if piece:
            return
        if self._path == "long":
            self._take(self._data.partition(b"\r\n\r\n")[2])
        else:
            self._heard.failures += 1
        self._selector.unregister(self._socket)
        self._socket.close()
        with contextlib.suppress(OSError):
            self.connect()

    def _take(self, body: bytes) -> None:
        try:
            self._after = max(self._after, self._heard.take(json.loads(body)["changes"]))
        except (ValueError, KeyError):
            self._heard.failures += 1


def run_connected(address: tuple[str, int], path: str, count: int, heard: Heard) -> None:
    """Hold a connection for each client."""
    selector = selectors.DefaultSelector()
    for _ in range(count):
        HeldConnection(address, path, heard, selector)
    print("ready", flush=True)
    while not heard.ended:
        for ready, _ in selector.select(0.1):
            ready.data.read()


def main(transport: str, host: str, port: int, pool: str, key: str, count: int) -> None:
    """Run the clients until SIGTERM."""
    heard, address = Heard(), (host, port)

    def end(*_: object) -> None:
        heard.ended = True

    signal.signal(signal.SIGTERM, end)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if transport == "light":
        read = read_key(key)
        run_in_turn([LightWeightClient(address, pool, read, heard) for _ in range(count)], heard)
    elif transport == "short":
        run_in_turn([ShortPollClient(address, heard) for _ in range(count)], heard)
    else:
        run_connected(address, transport, count, heard)
    print(json.dumps({"at_s": heard.at_s, "failures": heard.failures}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]))
