"""Asks name servers the same questions every millisecond, and records every answer with its times.

A program of its own, since it must keep its beat while the lab does other things: it is started in the
client's namespace and writes one line for each thing to its standard output. Times are monotonic, in s.

    B <number> <hex>                                   a message not seen lately, from its third byte on
    R <server> <question> <asked> <answered> <number>  an answer
    T <server> <question> <asked>                      no answer in time

Servers and questions are numbers, in the order given. Reading the answers is left to `observations.py`.
"""

import contextlib
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import click
import dns.message
import dns.rdatatype

MAX_QUESTIONS: Final = 16
_IDENTIFIERS: Final = 65536
_FLUSH_INTERVAL_S: Final = 0.02
_MAX_AT_ONCE: Final = 1000
_MAX_BODIES: Final = 20_000
_SO_RCVBUFFORCE: Final = 33
_RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024


class Bodies:
    """Numbers messages, so that each is written once; of a large pool almost every answer is another one."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._next = 0

    def number(self, body: bytes, lines: list[str]) -> int:
        """Return the number of a message; add a line with it if it was not seen lately."""
        number = self._numbers.get(body)
        if number is None:
            if len(self._numbers) >= _MAX_BODIES:
                self._numbers.clear()
            number = self._numbers[body] = self._next
            self._next += 1
            lines.append(f"B {number} {body.hex()}")
        return number


class Stream:
    """The questions put to one server, over one UDP socket that takes answers from this server only."""

    def __init__(
        self, number: int, address: tuple[str, int], queries: Sequence[bytes], timeout_s: float
    ) -> None:
        self.number = number
        self._queries = queries
        self._timeout_s = timeout_s
        self._identifier = 0
        self._open: dict[int, tuple[int, float]] = {}
        self._in_order: deque[tuple[int, float]] = deque()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        with contextlib.suppress(OSError):  # needs privilege; without it a pause of ours may lose answers
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
        self.socket.connect(address)

    def ask(self, question: int, now: float) -> None:
        """Send one question. A question that can't be sent counts as unanswered."""
        self._identifier = (self._identifier + 1) % _IDENTIFIERS
        self._open[self._identifier] = (question, now)
        self._in_order.append((self._identifier, now))
        with contextlib.suppress(OSError):  # ICMP told of an earlier question, or the buffer is full
            self.socket.send(self._identifier.to_bytes(2, "big") + self._queries[question])

    def take(self, lines: list[str], bodies: "Bodies") -> None:
        """Read all answers that are there and add a line for each."""
        for _ in range(_MAX_AT_ONCE):
            try:
                message = self.socket.recv(65535)
            except BlockingIOError:
                return
            except OSError:
                continue  # ICMP: port unreachable; the question runs into its timeout
            now = time.monotonic()
            found = self._open.pop(int.from_bytes(message[:2], "big"), None) if len(message) > 2 else None
            if found is None:
                continue  # too late, or nobody asked
            number = bodies.number(message[2:], lines)
            lines.append(f"R {self.number} {found[0]} {found[1]:.6f} {now:.6f} {number}")

    def expire(self, lines: list[str], now: float) -> None:
        """Give up on the questions that have waited too long."""
        while self._in_order and now - self._in_order[0][1] > self._timeout_s:
            identifier, asked_at_s = self._in_order.popleft()
            found = self._open.get(identifier)
            if found is not None and found[1] == asked_at_s:
                del self._open[identifier]
                lines.append(f"T {self.number} {found[0]} {asked_at_s:.6f}")


def build_query(text: str) -> bytes:
    """Return the query for "SRV:_sip._udp.as.example." or "A:as.example." without its identifier."""
    kind, _, name = text.partition(":")
    message = dns.message.make_query(name, dns.rdatatype.from_text(kind), use_edns=0, payload=1232)
    return message.to_wire()[2:]


def probe(streams: Sequence[Stream], questions: int, interval_s: float) -> None:
    """Ask and record until the reader of the output is gone."""
    by_socket = {stream.socket: stream for stream in streams}
    bodies = Bodies()
    lines: list[str] = []
    next_beat_s = next_flush_s = time.monotonic()
    while True:
        now = time.monotonic()
        if now >= next_beat_s:
            for stream in streams:
                for question in range(questions):
                    stream.ask(question, time.monotonic())
                stream.expire(lines, now)
            next_beat_s += interval_s
            if now - next_beat_s > 0.1:  # we were not let run: what was missed is not made up for
                next_beat_s = now + interval_s
        if now >= next_flush_s:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()
            lines.clear()
            next_flush_s = now + _FLUSH_INTERVAL_S
        wait_s = max(0.0, min(next_beat_s, next_flush_s) - time.monotonic())
        for ready in select.select(by_socket, (), (), wait_s)[0]:  # poll() would round up to whole ms
            by_socket[ready].take(lines, bodies)


@click.command()
@click.option("--server", "servers", multiple=True, required=True, help="ADDRESS:PORT")
@click.option("--question", "questions", multiple=True, required=True, help="TYPE:NAME")
@click.option("--interval-ms", type=click.FloatRange(0.1, 10_000), default=1.0, show_default=True)
@click.option("--timeout-ms", type=click.FloatRange(1, 60_000), default=1000.0, show_default=True)
def main(servers: Sequence[str], questions: Sequence[str], interval_ms: float, timeout_ms: float) -> None:
    """Ask each server each question every interval, and write what comes back."""
    if len(questions) > MAX_QUESTIONS:
        raise click.UsageError(f"at most {MAX_QUESTIONS} questions")
    queries = [build_query(question) for question in questions]
    streams = []
    for number, server in enumerate(servers):
        host, _, port = server.rpartition(":")
        streams.append(Stream(number, (host, int(port)), queries, timeout_ms / 1000))
    try:
        probe(streams, len(queries), interval_ms / 1000)
    except (BrokenPipeError, KeyboardInterrupt):
        sys.stderr.close()  # nobody reads any more: that is the end


if __name__ == "__main__":
    main()
