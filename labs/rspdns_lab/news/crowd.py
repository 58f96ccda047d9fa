"""Some thousand clients of one transport: `python -m ... PROGRAM TRANSPORT HOST PORT POOL KEY CLIENTS`.

It writes "ready" once all that poll were answered, "all heard N" once all know change N; on SIGTERM, as JSON,
when each client heard of each change, and by how much its connection was late. Clients ask in batches: those
of a batch have the same state and ask together, each with a connection of its own (`connections.c`, PROGRAM).
A batch whose clients are told different things is parted.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from array import array
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from daemon_kit.child import die_with_parent
from rspdns.news import CONNECT_TIMEOUT_S, Poller, read_key

from rspdns_lab.errors import LabError
from rspdns_lab.observe.percentiles import percentile

SOURCE: Final = Path(__file__).with_name("connections.c")
EVERY_S: Final = 1.0
BATCHES: Final = 500
BEGINNERS_PER_S: Final = 2000
"""Clients that begin in a second; later polls come at the same times of a second."""
HELD: Final = ("long", "events")
"""The transports that hold a connection for each client."""
HTTP_PATIENCE_S: Final = 60.0
FOR_EVER_S: Final = 1e6


class ClientQuestion(NamedTuple):
    """A connection to `port` (None: the open port) at `due_s` on the monotonic clock, and its first line."""

    due_s: float
    port: int | None
    line: bytes
    patience_s: float = HTTP_PATIENCE_S
    is_stream: bool = False
    """Each piece is told with its time once the connection ends."""


class ClientOutcome(NamedTuple):
    """The clients of a batch that were told the same, and when; their connections were late by less than
    `late_s`."""

    said: bytes | OSError
    at_s: list[float]
    late_s: float


class Connections:
    """The program `connections.c` on this host."""

    def __init__(self, program: str, host: str, port: int) -> None:
        self._port = port
        jobs, self._jobs = os.pipe()
        outcomes, told = os.pipe()
        prepare = die_with_parent(signal.SIGKILL)
        self.process = subprocess.Popen([program, host], stdin=jobs, stdout=told, preexec_fn=prepare)
        os.close(jobs)
        os.close(told)
        self._outcomes = open(outcomes, "rb")  # noqa: SIM115 - until this process ends

    def open(self, name: int, count: int, asked: ClientQuestion) -> None:
        """Have `count` connections opened when they are due."""
        times_us = round(1e6 * asked.due_s), round(1e6 * asked.patience_s)
        words = (name, asked.port or self._port, count, *times_us, int(asked.is_stream), len(asked.line))
        with contextlib.suppress(BrokenPipeError):  # it was ended
            os.write(self._jobs, " ".join(map(str, words)).encode() + b"\n" + asked.line)

    def end(self) -> None:
        """Close all connections; `outcomes` ends once all is told."""
        self.process.terminate()

    def outcomes(self) -> Iterator[tuple[int, list[ClientOutcome]]]:
        """Yield what came of each job, by its name, as it comes. Raises LabError."""
        while line := self._outcomes.readline():
            name, late_us, groups = map(int, line.split())
            yield name, [self._group(late_us / 1e6) for _ in range(groups)]
        if status := self.process.wait():
            raise LabError(f"the program of connections ended with {status}")

    def _group(self, late_s: float) -> ClientOutcome:
        problem, count, length = map(int, self._outcomes.readline().split())
        at_us = array("q", self._outcomes.read(8 * count))
        said = self._outcomes.read(length)
        return ClientOutcome(OSError(problem, "") if problem else said, [at / 1e6 for at in at_us], late_s)


class Heard:
    """When each of `clients` heard of the changes, by number, and by how much its connection was late."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self.at_s: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self.failures = 0

    def take(self, changes: list[dict[str, Any]], outcome: ClientOutcome) -> int:
        """Note these changes of the clients that heard of them; return the last number."""
        for change in changes:
            heard = self.at_s[change["number"]]
            heard += [(round(at, 4), round(outcome.late_s, 4)) for at in outcome.at_s]
            if len(heard) == self._clients:
                print("all heard", change["number"], flush=True)
        return max((change["number"] for change in changes), default=0)


class AskingClient(Protocol):
    """A client that asks again and again."""

    def question(self) -> ClientQuestion:
        """Return what to ask next."""

    def take(self, outcome: ClientOutcome) -> None:
        """Take what this client was told, and as many others like it as there are times."""


class LightWeightClient:
    """A client of `rspdns news`, by the machine that `rspdns watch` has."""

    def __init__(self, pool: str, key: bytes, heard: Heard, due_s: float) -> None:
        self._poller = Poller(pool, key)
        self._heard = heard
        self._due_s = due_s

    def __copy__(self) -> LightWeightClient:
        twin = LightWeightClient(self._poller.pool, self._poller.key, self._heard, self._due_s)
        twin._poller = copy.copy(self._poller)
        return twin

    def question(self) -> ClientQuestion:
        """See `AskingClient`."""
        poll = self._poller.next(self._due_s)
        return ClientQuestion(self._due_s, poll.port, poll.line, CONNECT_TIMEOUT_S)

    def take(self, outcome: ClientOutcome) -> None:
        """See `AskingClient`."""
        now, said = outcome.at_s[-1], outcome.said
        if isinstance(said, ConnectionRefusedError):
            self._poller.refused(now)
        elif isinstance(said, OSError):
            self._poller.failed(now, str(said))
        elif (answer := self._poller.received(now, said)) is not None:
            self._heard.take(answer["changes"], outcome)
        self._heard.failures += len(outcome.at_s) if self._poller.problem else 0
        self._due_s = self._poller.next(now).at_s


class HttpClient:
    """A client that asks by HTTP: each second, or at once again if it holds its connections."""

    def __init__(self, path: str, heard: Heard, due_s: float) -> None:
        self._path = path
        self._heard = heard
        self._after = 0
        self._due_s = due_s

    def question(self) -> ClientQuestion:
        """See `AskingClient`."""
        is_stream = self._path == "events"
        patience_s = FOR_EVER_S if is_stream else HTTP_PATIENCE_S
        return ClientQuestion(self._due_s, None, request_of(self._path, self._after), patience_s, is_stream)

    def take(self, outcome: ClientOutcome) -> None:
        """See `AskingClient`."""
        self._due_s = max(outcome.at_s[-1], self._due_s + (0.0 if self._path in HELD else EVERY_S))
        try:
            if isinstance(outcome.said, OSError):
                raise outcome.said
            for body in bodies_of(outcome.said, is_stream=self._path == "events"):
                self._after = max(self._after, self._heard.take(changes_of(body), outcome))
        except (OSError, ValueError, KeyError):
            self._heard.failures += len(outcome.at_s)


def request_of(path: str, after: int) -> bytes:
    """The question of an HTTP client."""
    return f"GET /{path}?after={after} HTTP/1.1\r\nHost: news\r\nConnection: close\r\n\r\n".encode()


def bodies_of(said: bytes, *, is_stream: bool) -> list[bytes]:
    """The body of an HTTP response that is whole, or the data of a piece of server-sent events."""
    if is_stream:
        return [line[6:] for line in said.splitlines() if line.startswith(b"data: ")]
    return [said.partition(b"\r\n\r\n")[2]]


@lru_cache(maxsize=64)
def changes_of(body: bytes) -> list[dict[str, Any]]:
    """The changes that a body tells. Raises ValueError and KeyError."""
    changes: list[dict[str, Any]] = json.loads(body)["changes"]
    return changes


def run_clients(
    connections: Connections, batches: list[tuple[AskingClient, int]], are_held: bool = False
) -> list[float]:
    """Have the clients ask until the connections end; return how late each batch was, in s.

    `are_held`: they are not answered before there is news.
    """
    asking = dict(enumerate(batches))
    late_s: list[float] = []
    silent, last = set() if are_held else set(asking), len(asking)
    for name, (client, count) in asking.items():
        connections.open(name, count, client.question())
    if are_held:
        print("ready", flush=True)
    for name, outcomes in connections.outcomes():
        client, _ = asking.pop(name)
        outcomes = [each for each in outcomes if not _is_cancelled(each)]
        late_s += [outcome.late_s for outcome in outcomes[:1]]
        for outcome in outcomes:
            twin = client if len(outcomes) == 1 else copy.copy(client)
            twin.take(outcome)
            last += 1
            asking[last] = (twin, len(outcome.at_s))
            connections.open(last, len(outcome.at_s), twin.question())
        if silent:
            silent.discard(name)
            if not silent:
                print("ready", flush=True)
    return late_s


def _is_cancelled(outcome: ClientOutcome) -> bool:
    return isinstance(outcome.said, OSError) and outcome.said.errno == errno.ECANCELED


def main(program: str, transport: str, host: str, port: int, pool: str, key: str, count: int) -> None:
    """Run the clients until SIGTERM."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    heard, connections = Heard(count), Connections(program, host, port)
    signal.signal(signal.SIGTERM, lambda *_: connections.end())
    number, now = min(BATCHES, count), time.monotonic()
    counts = [count // number + (place < count % number) for place in range(number)]
    begin_s = [now + count / BEGINNERS_PER_S * random.random() for _ in counts]  # noqa: S311 - no secret
    clients: Iterator[AskingClient]
    if transport == "light":
        secret = read_key(key)
        clients = (LightWeightClient(pool, secret, heard, due_s) for due_s in begin_s)
    else:
        clients = (HttpClient(transport, heard, due_s) for due_s in begin_s)
    late_s = run_clients(connections, list(zip(clients, counts, strict=True)), transport in HELD)
    late_ms = round(1000 * percentile(late_s, 99), 1)
    print(json.dumps({"at_s": heard.at_s, "failures": heard.failures, "late_ms": late_ms}), flush=True)


if __name__ == "__main__":
    program, transport, host, port, pool, key, count = sys.argv[1:]
    main(program, transport, host, int(port), pool, key, int(count))
