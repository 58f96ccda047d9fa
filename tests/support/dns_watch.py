"""Asks a name server for one SRV name again and again, and tells what each answer said."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import dns.message
import dns.rcode
import dns.rdatatype

from tests.support.namespaces import Namespace

INTERVAL_MS = 5
TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Answer:
    """One answer: the ports of its SRV records; without any, what it was instead."""

    asked_at_s: float
    ports: frozenset[int]
    problem: str
    """"" for an answer with records, else "EMPTY", the name of the rcode, or "TIMEOUT"."""


class DnsWatch:
    """Watches `owner` at this port of 127.0.0.1 of the namespace, from now until the namespace is removed."""

    def __init__(
        self, namespace: Namespace, owner: str, log: Path, port: int = 53, interval_ms: int = INTERVAL_MS
    ) -> None:
        self._log = log
        namespace.start(
            *(sys.executable, "-m", "rspdns_lab.observe.prober", "--server", f"127.0.0.1:{port}"),
            *("--question", f"SRV:{owner}", "--interval-ms", str(interval_ms)),
            *("--timeout-ms", str(1000 * TIMEOUT_S)),
            log=log,
        )
        end_s = time.monotonic() + 20
        while not self.since(0):
            assert time.monotonic() < end_s, log.read_text()
            time.sleep(0.05)

    def since(self, asked_at_s: float, until_s: float = float("inf")) -> list[Answer]:
        """The questions from then on (both monotonic), in the order of the answers."""
        readings: list[tuple[frozenset[int], str]] = []
        found = []
        for line in (self._log.read_text() if self._log.exists() else "").split("\n")[:-1]:
            kind, *words = line.split()
            if kind == "B":
                readings.append(_read(bytes.fromhex(words[1])))
                continue
            assert kind in "RT", line
            reading = readings[int(words[4])] if kind == "R" else (frozenset[int](), "TIMEOUT")
            if asked_at_s <= float(words[2]) < until_s:
                found.append(Answer(float(words[2]), *reading))
        return found

    def wrong(self, right: set[int], asked_at_s: float, until_s: float = float("inf")) -> list[Answer]:
        """Those since then that do not say exactly `right`."""
        return [answer for answer in self.since(asked_at_s, until_s) if answer.ports != right]


def _read(body: bytes) -> tuple[frozenset[int], str]:
    message = dns.message.from_wire(b"\0\0" + body)
    ports = frozenset(
        record.port for rrset in message.answer if rrset.rdtype == dns.rdatatype.SRV for record in rrset
    )
    if ports:
        return ports, ""
    failed = message.rcode() != dns.rcode.NOERROR
    return ports, dns.rcode.to_text(message.rcode()) if failed else "EMPTY"
