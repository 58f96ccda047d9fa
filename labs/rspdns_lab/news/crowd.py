"""Some thousand clients of one transport: `python -m ... TRANSPORT HOST PORT POOL KEY CLIENTS`.

It writes "ready" once all have subscribed; on SIGTERM, as JSON, when each client heard of each change, and by
how much polls were late. Clients that poll do so in batches: those of a batch have the same state and poll
together, each with a connection of its own. A batch whose clients are told different things is parted.
"""

from __future__ import annotations

import contextlib
import copy
import heapq
import itertools
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
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Protocol

from rspdns.news import Poller, read_key

from rspdns_lab.observe.percentiles import percentile

EVERY_S: Final = 1.0
BATCHES: Final = 200
"""Their polls are spread over the time between two."""
_TIMEOUT_S: Final = 5.0
_CONNECT_TIMEOUT_S: Final = 60.0
"""The patience of clients that hold their connection, since thousands of them connect at once."""
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_PIECE: Final = 256 * 1024


class Heard:
    """When the clients heard of the changes, by number; `ended` once SIGTERM came."""

    def __init__(self) -> None:
        self.at_s: dict[int, list[float]] = defaultdict(list)
        self.failures = 0
        self.ended = False

    def take(self, changes: list[dict[str, Any]], at_s: list[float]) -> int:
        """Note these changes of the clients that heard of them at these times; return the last number."""
        for change in changes:
            self.at_s[change["number"]] += at_s
        return max((change["number"] for change in changes), default=0)


def exchanges(address: tuple[str, int], line: bytes, count: int) -> Iterator[bytes | OSError]:
    """Open `count` connections together, send `line` on each; yield all that came on it, or why nothing."""
    begun = []
    for _ in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(address)
        begun.append(connection)
    for connection in begun:
        with connection:
            try:
                yield _rest(connection, line)
            except OSError as problem:
                yield problem


def _rest(connection: socket.socket, line: bytes) -> bytes:
    pieces = []
    if not line:
        with contextlib.suppress(BlockingIOError):  # most often it was refused meanwhile
            pieces.append(connection.recv(_PIECE))
    connection.settimeout(_TIMEOUT_S)
    connection.sendall(line)
    while piece := connection.recv(_PIECE):
        pieces.append(piece)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    return b"".join(pieces)


class PollingClient(Protocol):
    """A client that polls."""

    due_s: float

    def question(self) -> tuple[int | None, bytes]:
        """Return the port to ask (None: the open port) and the line to send."""

    def take(self, said: bytes | OSError, at_s: list[float]) -> None:
        """Take what this client was told, and as many others like it as there are times."""


class LightWeightClient:
    """A client of `rspdns news`, by the machine that `rspdns watch` has."""

    def __init__(self, pool: str, key: bytes, heard: Heard) -> None:
        self._poller = Poller(pool, key)
        self._heard = heard
        self.due_s = 0.0

    def __copy__(self) -> LightWeightClient:
        twin = LightWeightClient(self._poller.pool, self._poller.key, self._heard)
        twin._poller = copy.copy(self._poller)
        return twin

    def question(self) -> tuple[int | None, bytes]:
        """See `PollingClient`."""
        poll = self._poller.next(time.monotonic())
        return poll.port, poll.line

    def take(self, said: bytes | OSError, at_s: list[float]) -> None:
        """See `PollingClient`."""
        now = time.monotonic()
        if isinstance(said, ConnectionRefusedError):
            self._poller.refused(now)
        elif isinstance(said, OSError):
            self._poller.failed(now, str(said))
        elif (answer := self._poller.received(now, said)) is not None:
            self._heard.take(answer["changes"], at_s)
        self._heard.failures += len(at_s) if self._poller.problem else 0
        self.due_s = self._poller.next(now).at_s


class ShortPollClient:
    """A client that asks again and again."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._after = 0
        self.due_s = 0.0

    def question(self) -> tuple[int | None, bytes]:
        """See `PollingClient`."""
        self.due_s = time.monotonic() + EVERY_S
        return None, request_of("short", self._after)

    def take(self, said: bytes | OSError, at_s: list[float]) -> None:
        """See `PollingClient`."""
        try:
            if isinstance(said, OSError):
                raise said
            self._after = max(self._after, self._heard.take(changes_of(body_of(said)), at_s))
        except (OSError, ValueError, KeyError):
            self._heard.failures += len(at_s)


def request_of(path: str, after: int) -> bytes:
    """The question of an HTTP client."""
    return f"GET /{path}?after={after} HTTP/1.1\r\nHost: news\r\nConnection: close\r\n\r\n".encode()


def body_of(response: bytes) -> bytes:
    """The body of an HTTP response that is whole."""
    return response.partition(b"\r\n\r\n")[2]


@lru_cache(maxsize=64)
def changes_of(body: bytes) -> list[dict[str, Any]]:
    """The changes that a body tells. Raises ValueError and KeyError."""
    changes: list[dict[str, Any]] = json.loads(body)["changes"]
    return changes


def run_in_turn(client: PollingClient, address: tuple[str, int], count: int, heard: Heard) -> list[float]:
    """Let `count` clients like this one poll when they are due; return how late each poll was, in s."""
    batches, number = min(BATCHES, count), itertools.count()
    due: list[tuple[float, int, PollingClient, int]] = []
    late_s: list[float] = []

    def poll(client: PollingClient, count: int) -> None:
        port, line = client.question()
        told: dict[object, tuple[bytes | OSError, list[float]]] = {}
        for said in exchanges((address[0], port or address[1]), line, count):
            same = said.errno if isinstance(said, OSError) else said
            told.setdefault(same, (said, []))[1].append(round(time.monotonic(), 4))
        for said, at_s in told.values():
            twin = client if len(told) == 1 else copy.copy(client)
            twin.take(said, at_s)
            heapq.heappush(due, (twin.due_s, next(number), twin, len(at_s)))

    for place in range(batches):
        poll(copy.copy(client), count // batches + (place < count % batches))
    now = time.monotonic()
    due = [(now + EVERY_S * random.random(), *batch[1:]) for batch in due]  # noqa: S311 - no secret
    heapq.heapify(due)
    print("ready", flush=True)
    while not heard.ended:
        wait_s = due[0][0] - time.monotonic()
        if wait_s > 0:
            time.sleep(min(0.1, wait_s))
            continue
        _, _, client, count = heapq.heappop(due)
        late_s.append(-wait_s)
        poll(client, count)
    return late_s


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
        self._socket = socket.create_connection(self._address, _CONNECT_TIMEOUT_S)
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
            self._take(body_of(self._data))
        else:
            self._heard.failures += 1
        self._selector.unregister(self._socket)
        self._socket.close()
        with contextlib.suppress(OSError):
            self.connect()

    def _take(self, body: bytes) -> None:
        try:
            last = self._heard.take(changes_of(body), [round(time.monotonic(), 4)])
            self._after = max(self._after, last)
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
    heard, address, late_s = Heard(), (host, port), [0.0]

    def end(*_: object) -> None:
        heard.ended = True

    signal.signal(signal.SIGTERM, end)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if transport == "light":
        late_s = run_in_turn(LightWeightClient(pool, read_key(key), heard), address, count, heard)
    elif transport == "short":
        late_s = run_in_turn(ShortPollClient(heard), address, count, heard)
    else:
        run_connected(address, transport, count, heard)
    late_ms = round(1000 * percentile(late_s, 99), 1)
    print(json.dumps({"at_s": heard.at_s, "failures": heard.failures, "late_ms": late_ms}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]))
