"""Starts the prober on the client host, and reads its lines: what each answer said, whatever bytes came."""

import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Final

import dns.exception
import dns.message
import dns.rcode
import dns.rdataclass
import dns.rdatatype

from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program
from rspdns_lab.observe.verdict import Kind, Observation

# Observations come in the order of the answers; by no more than this are questions out of theirs.
_DISORDER_S = 5.0


@dataclass(frozen=True)
class Reading:
    """The contents of one message: targets that had no address in it stand under their name."""

    kind: Kind
    names: frozenset[str] = frozenset()
    weights: tuple[tuple[str, int, int], ...] = ()
    """Target address, priority and weight of each SRV record."""


def read_message(body: bytes) -> Reading:
    """Read a DNS message without its identifier.

    Thousands come each second, most of them another one, and dnspython takes milliseconds for one: so those
    that are as usual are read here, and it is asked about all others.
    """
    try:
        return read_usual(body)
    except (struct.error, IndexError, LookupError, ValueError):
        return read_any(body)


_MOST_NAME_BYTES: Final = 255
"""RFC 1035, section 2.3.4."""


def read_usual(body: bytes) -> Reading:
    """Read an answer with records. Raises an exception of its own when there is anything unusual in it."""
    flags, questions, answers, others, additional = struct.unpack_from(">5H", body)
    if flags & 0xF or not flags & 0x8000 or flags & 0x0200 or not answers:
        raise ValueError("unusual")
    offset = 10
    for _ in range(questions):
        offset = _read_name(body, offset)[1] + 4
    found: dict[bytes, list[str]] = {}
    direct: set[str] = set()
    targets: list[tuple[bytes, int, int]] = []
    for number in range(answers + others + additional):
        owner, offset = _read_name(body, offset)
        kind, rdclass, _, length = struct.unpack_from(">HHIH", body, offset)
        offset += 10
        if offset + length > len(body):
            raise ValueError("cut off")
        if rdclass != dns.rdataclass.IN and kind != dns.rdatatype.OPT:
            raise ValueError("unusual")
        if kind in (dns.rdatatype.A, dns.rdatatype.AAAA):
            address = str(ip_address(body[offset : offset + length]))
            found.setdefault(owner, []).append(address)
            if number < answers:
                direct.add(address)
        elif kind == dns.rdatatype.SRV and number < answers:
            priority, weight = struct.unpack_from(">HH", body, offset)
            targets.append((_read_name(body, offset + 6)[0], priority, weight))
        offset += length
    if offset != len(body) or not (direct or targets):
        raise ValueError("unusual")
    weights = sorted(
        (address, priority, weight) for name, priority, weight in targets for address in found[name]
    )
    return Reading(Kind.ANSWER, frozenset(direct | {address for address, _, _ in weights}), tuple(weights))


def _read_name(body: bytes, offset: int) -> tuple[bytes, int]:
    """Return the name at `offset` in lower case, and the offset after it; pointers are off by 2 bytes."""
    labels: list[bytes] = []
    end = size = 0
    while length := body[offset]:
        if length >= 0xC0:
            end = end or offset + 2
            before, offset = offset, (length & 0x3F) << 8 | body[offset + 1]
            offset -= 2
            if not 0 <= offset < before:
                raise ValueError("a pointer that does not point back")
        elif length > 63:
            raise ValueError("neither label nor pointer")
        else:
            labels.append(body[offset : offset + 1 + length])
            offset += 1 + length
            size += 1 + length
            if size > _MOST_NAME_BYTES:  # else labels and a pointer back to them would go round for ever
                raise ValueError("a name without end")
    return b"".join(labels).lower(), end or offset + 1


def read_any(body: bytes) -> Reading:
    """Read a DNS message without its identifier, whatever it is."""
    try:
        message = dns.message.from_wire(b"\0\0" + body)
    except (dns.exception.DNSException, ValueError, IndexError):
        return Reading(Kind.MALFORMED)
    if message.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        return Reading(Kind.SERVFAIL)
    addresses: dict[str, list[str]] = {}
    message.answer = [rrset for rrset in message.answer if rrset.rdclass == dns.rdataclass.IN]
    message.additional = [rrset for rrset in message.additional if rrset.rdclass == dns.rdataclass.IN]
    for rrset in (*message.answer, *message.additional):
        if rrset.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA):
            addresses.setdefault(rrset.name.to_text().lower(), []).extend(record.address for record in rrset)
    names: set[str] = set()
    weights = []
    for rrset in message.answer:
        if rrset.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA):
            names.update(record.address for record in rrset)
        elif rrset.rdtype == dns.rdatatype.SRV:
            for record in rrset:
                target = record.target.to_text().lower()
                for address in addresses.get(target, [target]):
                    names.add(address)
                    weights.append((address, record.priority, record.weight))
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
    """The latest answer of each server to each question."""
    _known: dict[Reading, Reading] = field(default_factory=dict)
    """Many messages say the same."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, line: str) -> None:
        """Take in one line of the prober; one that isn't is passed over."""
        parts = line.split()
        try:
            if parts[0] == "B" and int(parts[1]) == len(self.readings):
                reading = read_message(bytes.fromhex(parts[2]))
                self.readings.append(self._known.setdefault(reading, reading))
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
            for observation in reversed(self.observations):
                if observation.asked_at_s >= asked_at_s:
                    found.append(observation)
                elif observation.asked_at_s < asked_at_s - _DISORDER_S:
                    break
        found.reverse()
        return found

    def forget(self, asked_before_s: float) -> None:
        """Drop what was asked before then: a long lab would fill the memory."""
        with self._lock:
            self.observations[:] = [
                observation for observation in self.observations if observation.asked_at_s >= asked_before_s
            ]

    def follow(self, output: IO[bytes]) -> threading.Thread:
        """Take in all lines of `output`, in a thread of its own, until it ends."""

        def read() -> None:
            for line in output:
                self.take(line.decode("ascii", errors="replace"))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread


def start_prober(
    client: Host,
    servers: Sequence[str],
    questions: Sequence[str],
    recorder: Recorder,
    folder: Path,
    interval_ms: float = 1.0,
) -> Program:
    """Ask `servers` (IPv4 addresses) all `questions` ("TYPE:NAME") from now on; answers go to `recorder`."""
    command = [sys.executable, "-m", "rspdns_lab.observe.prober", f"--interval-ms={interval_ms}"]
    command += [f"--server={server}:53" for server in servers]
    command += [f"--question={question}" for question in questions]
    prober = Program("prober", client, command, folder / "prober.log")
    prober.start(stdout=subprocess.PIPE)
    recorder.follow(prober.stdout)
    return prober
