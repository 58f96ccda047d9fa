"""From the prober's lines to observations: what each answer said, whatever bytes came."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype

from rspdns_lab.verdict import Kind, Observation

# Observations come in the order of the answers; by no more than this are questions out of theirs.
_DISORDER_S = 5.0


@dataclass(frozen=True)
class Reading:
    """What one message said: targets that had no address in it stand under their name."""

    kind: Kind
    names: frozenset[str] = frozenset()
    weights: tuple[tuple[str, int, int], ...] = ()
    """Of SRV answers: target address, priority, weight."""


def read_message(body: bytes) -> Reading:
    """Read a DNS message without its identifier."""
    try:
        message = dns.message.from_wire(b"\0\0" + body)
    except (dns.exception.DNSException, ValueError, IndexError):
        return Reading(Kind.MALFORMED)
    if message.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        return Reading(Kind.SERVFAIL)
    addresses: dict[str, list[str]] = {}
    for rrset in (*message.answer, *message.additional):
        if rrset.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA):
            addresses.setdefault(rrset.name.to_text().lower(), []).extend(one.address for one in rrset)
    names: set[str] = set()
    weights = []
    for rrset in message.answer:
        if rrset.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA):
            names.update(one.address for one in rrset)
        elif rrset.rdtype == dns.rdatatype.SRV:
            for one in rrset:
                target = one.target.to_text().lower()
                for address in addresses.get(target, [target]):
                    names.add(address)
                    weights.append((address, one.priority, one.weight))
    if not names:
        return Reading(Kind.EMPTY)
    return Reading(Kind.ANSWER, frozenset(names), tuple(sorted(weights)))


@dataclass
class Recorder:
    """Collects what the prober writes. `complete[question]`: such an answer should hold every live server."""

    complete: Sequence[bool]
    observations: list[Observation] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    latest: dict[tuple[int, int], Reading] = field(default_factory=dict)
    """What each server last said to each question."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, line: str) -> None:
        """Take in one line of the prober; one that isn't is passed over."""
        parts = line.split()
        try:
            if parts[0] == "B" and int(parts[1]) == len(self.readings):
                self.readings.append(read_message(bytes.fromhex(parts[2])))
            elif parts[0] == "R":
                reading = self.readings[int(parts[5])]
                self._add(parts, float(parts[4]), reading)
            elif parts[0] == "T":
                self._add(parts, None, Reading(Kind.TIMEOUT))
        except (IndexError, ValueError):
            return

    def _add(self, parts: Sequence[str], answered_at_s: float | None, reading: Reading) -> None:
        server, question = int(parts[1]), int(parts[2])
        observation = Observation(
            server,
            question,
            self.complete[question],
            float(parts[3]),
            answered_at_s,
            reading.kind,
            reading.names,
        )
        with self._lock:
            self.observations.append(observation)
            self.latest[server, question] = reading

    def since(self, asked_at_s: float) -> list[Observation]:
        """Return what was asked at or after `asked_at_s`."""
        found = []
        with self._lock:
            for one in reversed(self.observations):
                if one.asked_at_s >= asked_at_s:
                    found.append(one)
                elif one.asked_at_s < asked_at_s - _DISORDER_S:
                    break
        found.reverse()
        return found

    def follow(self, output: IO[bytes]) -> threading.Thread:
        """Take in all lines of `output`, in a thread of its own, until it ends."""

        def read() -> None:
            for line in output:
                self.take(line.decode("ascii", errors="replace"))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread
