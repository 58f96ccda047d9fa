"""Sends synthetic VoIP to an address, or to what DNS says: looked up anew each TTL, as a caller would.

Writes a line for each packet, "S call sequence sent_ns", and, when it asks DNS, one for each change of the
answer, "A asked_ns addresses...". The answer is asked for every 20 ms; but the stream moves only when its
last lookup is a TTL old, and stays with its server as long as that one is named.
"""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable

import click
import dns.exception
import dns.message
import dns.query
import dns.rdatatype

from rspdns_lab.chain.asking import look_up
from rspdns_lab.compare.voip import CALLS, PACKETS_PER_S, packet

_ASK_INTERVAL_S = 0.02
_ASK_TIMEOUT_S = 0.5
_TTL_S = 1.0


class PresentAnswers:
    """The present answers of DNS: the addresses behind the SRV records, asked again and again by a thread."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.addresses: tuple[str, ...] = ()
        self.lines: list[str] = []

    def run(self) -> None:
        """Ask for ever."""
        while True:
            asked_ns = time.monotonic_ns()
            try:
                found = tuple(sorted(self._look_up()))
            except (OSError, dns.exception.DNSException):
                found = ()
            if found and found != self.addresses:
                self.addresses = found
                self.lines.append(f"A {asked_ns} {' '.join(found)}")
            time.sleep(_ASK_INTERVAL_S)

    def _look_up(self) -> set[str]:
        return look_up(lambda query: dns.query.udp(query, self._server, timeout=_ASK_TIMEOUT_S))


def choose(current: str, addresses: tuple[str, ...]) -> str:
    """Return where the stream goes: where it went, as long as that is named; else to the first one."""
    return current if current in addresses or not addresses else addresses[0]


def talk(stream: int, port: int, target: Callable[[], str], answers: PresentAnswers | None) -> None:
    """Send for ever; the calls' packets are spread evenly over a packet's time."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    step_s = 1 / PACKETS_PER_S / CALLS
    next_s = time.monotonic()
    number = 0
    while True:
        sequence, call = divmod(number, CALLS)
        now_ns = time.monotonic_ns()
        with contextlib.suppress(OSError):  # no route, no neighbour: the packet is lost, and counts as that
            sender.sendto(packet(stream, call, sequence, now_ns), (target(), port))
        sys.stdout.write(f"S {call} {sequence} {now_ns}\n")
        if answers is not None and answers.lines:
            sys.stdout.write("".join(f"{answers.lines.pop(0)}\n" for _ in range(len(answers.lines))))
        if call == 0:
            sys.stdout.flush()
        number += 1
        next_s += step_s
        time.sleep(max(0.0, next_s - time.monotonic()))


@click.command()
@click.option("--to", "address", help="A fixed address.")
@click.option("--dns", "server", help="A name server to ask where to.")
@click.option("--port", type=click.IntRange(1, 65535), required=True)
@click.option("--stream", type=click.IntRange(0, 255), required=True)
def main(address: str | None, server: str | None, port: int, stream: int) -> None:
    """Send until killed."""
    if server is None:
        fixed = address or "127.0.0.1"
        talk(stream, port, lambda: fixed, None)
        return
    answers = PresentAnswers(server)
    threading.Thread(target=answers.run, daemon=True).start()
    while not answers.addresses:
        time.sleep(_ASK_INTERVAL_S)
    current, looked_up_s = answers.addresses[0], time.monotonic()

    def target() -> str:
        nonlocal current, looked_up_s
        now = time.monotonic()
        if now - looked_up_s >= _TTL_S:
            current, looked_up_s = choose(current, answers.addresses), now
        return current

    talk(stream, port, target, answers)


if __name__ == "__main__":
    main()
