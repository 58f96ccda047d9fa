"""Asks many name servers the same question until each gives the awaited number of records."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Final

import dns.exception
import dns.message
import dns.query
import dns.rdatatype
import dns.zone

from rspdns_lab.chain.plan import NAME, ZONE

OWNER: Final = f"_sip._tcp.{NAME}"
BEAT_S: Final = 0.02
"""Time between two questions to each: 50 servers are asked 2,500 times a second."""
_COUNTS = struct.Struct("!HHHHHH")
_PATIENCE_S: Final = 2.0


class RecordsAsker:
    """Asks `addresses`; must be made in the network namespace it is to ask from."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._wire = dns.message.make_query(OWNER, "SRV").to_wire()
        self._sockets: dict[int, tuple[int, socket.socket]] = {}
        self._poll = select.epoll()
        for index, address in enumerate(addresses):
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.setblocking(False)
            made.connect((address, 53))
            self._sockets[made.fileno()] = index, made
            self._poll.register(made, select.EPOLLIN)

    def close(self) -> None:
        """Ask no more."""
        self._poll.close()
        for _, made in self._sockets.values():
            made.close()

    def until_records(self, records: int, timeout_s: float) -> dict[int, float]:
        """Ask until each answers with this number of SRV records; return when each did first (monotonic)."""
        end_s = time.monotonic() + timeout_s
        right: dict[int, float] = {}
        self._drain()
        number = 0
        while len(right) < len(self._sockets) and (began_s := time.monotonic()) < end_s:
            number = number % 65535 + 1
            for index, made in self._sockets.values():
                if index not in right:
                    with contextlib.suppress(OSError):
                        made.send(struct.pack("!H", number) + self._wire[2:])
            while (left_s := began_s + BEAT_S - time.monotonic()) > 0 and len(right) < len(self._sockets):
                for file, _ in self._poll.poll(left_s):
                    index, made = self._sockets[file]
                    if self._count(made) == records:
                        right.setdefault(index, time.monotonic())
        return right

    def counts(self) -> dict[int, int]:
        """The number of SRV records that each answers now; those that don't answer are missing."""
        self._drain()
        found: dict[int, int] = {}
        end_s = time.monotonic() + _PATIENCE_S
        for _, made in self._sockets.values():
            with contextlib.suppress(OSError):
                made.send(self._wire)
        while len(found) < len(self._sockets) and (left_s := end_s - time.monotonic()) > 0:
            for file, _ in self._poll.poll(left_s):
                index, made = self._sockets[file]
                if (count := self._count(made)) is not None:
                    found[index] = count
        return found

    def _count(self, made: socket.socket) -> int | None:
        try:
            data = made.recv(4096)
        except OSError:
            return None
        _, flags, _, answers, _, _ = _COUNTS.unpack_from(data)
        return answers if not flags & 0xF else None

    def _drain(self) -> None:
        """Throw away late answers."""
        for _, made in self._sockets.values():
            with contextlib.suppress(OSError):
                while True:
                    made.recv(4096)


def serial(address: str) -> int | None:
    """The serial that a name server has; None without an answer."""
    try:
        reply = dns.query.udp(dns.message.make_query(ZONE, "SOA"), address, timeout=_PATIENCE_S)
        return int(reply.answer[0][0].serial)
    except (OSError, dns.exception.DNSException, LookupError):
        return None


def records(address: str) -> Mapping[str, str] | None:
    """All records of a name server's zone, by name and type; None if it can't be transferred."""
    try:
        zone = dns.zone.from_xfr(
            dns.query.xfr(address, ZONE, lifetime=20, relativize=False), relativize=False
        )
    except (OSError, dns.exception.DNSException, LookupError):
        return None
    return {
        f"{name} {dns.rdatatype.to_text(rdataset.rdtype)}": " ".join(sorted(map(str, rdataset)))
        for name, rdataset in zone.iterate_rdatasets()
    }
