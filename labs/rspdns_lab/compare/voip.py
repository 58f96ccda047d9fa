"""Synthetic VoIP: calls in G.711, in RTP (RFC 3550), 50 packets of 172 bytes a second; what a receiver makes
of them. Pure."""

import statistics
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rspdns_lab.observe.percentiles import percentile

CALLS: Final = 2
"""The calls of a stream at a time, each one way."""
PACKETS_PER_S: Final = 50
_PACKET_BYTES: Final = 12 + 160
"""UDP payload: RTP's header without contributing sources, and 20 ms of speech."""
_PACKET_MS: Final = 1000 / PACKETS_PER_S
_STAMP: Final = struct.Struct("!BHIQ")
"""Stream, call, sequence number, sending time in ns: the head of each packet."""


def packet(stream: int, call: int, sequence: int, now_ns: int) -> bytes:
    """Return one packet: numbered and stamped with its sending time, of the right size."""
    return _STAMP.pack(stream, call, sequence, now_ns).ljust(_PACKET_BYTES, b"\0")


@dataclass(frozen=True)
class SentPacket:
    """One packet sent; monotonic time in ns."""

    call: int
    sequence: int
    at_ns: int


@dataclass(frozen=True)
class ReceivedPacket:
    """One packet received, with its sending time; monotonic times in ns."""

    stream: int
    call: int
    sequence: int
    sent_ns: int
    at_ns: int


def read_packet(packet: bytes, now_ns: int) -> ReceivedPacket | None:
    """Return what a packet says, or None when it is too short to be one of ours."""
    if len(packet) < _STAMP.size:
        return None
    stream, call, sequence, sent_ns = _STAMP.unpack_from(packet)
    return ReceivedPacket(stream, call, sequence, sent_ns, now_ns)


@dataclass(frozen=True)
class Quality:
    """The quality for a listener; a glitch = lost packets / packet rate, of the mean and of the worst
    call."""

    sent: int
    lost: int
    glitch_ms: float
    worst_glitch_ms: float
    delay_p50_ms: float
    delay_p99_ms: float
    jitter_ms: float


def judge(sent: Sequence[SentPacket], received: Iterable[ReceivedPacket]) -> Quality:
    """Return the quality of all calls; jitter as in RFC 3550, section 6.4.1, the mean of the calls."""
    arrived = {(packet.call, packet.sequence): packet for packet in received}
    lost = dict.fromkeys(range(CALLS), 0)
    for packet in sent:
        lost[packet.call] += (packet.call, packet.sequence) not in arrived
    delays = [(packet.at_ns - packet.sent_ns) / 1e6 for packet in arrived.values()]
    total = sum(lost.values())
    jitters = [_jitter_ms(packet for packet in arrived.values() if packet.call == call) for call in lost]
    return Quality(
        sent=len(sent),
        lost=total,
        glitch_ms=round(total / CALLS * _PACKET_MS, 1),
        worst_glitch_ms=round(max(lost.values()) * _PACKET_MS, 1),
        delay_p50_ms=round(percentile(delays, 50), 3),
        delay_p99_ms=round(percentile(delays, 99), 3),
        jitter_ms=round(statistics.mean(jitters), 3),
    )


def _jitter_ms(received: Iterable[ReceivedPacket]) -> float:
    jitter = 0.0
    before: float | None = None
    for packet in sorted(received, key=lambda packet: packet.at_ns):
        transit = (packet.at_ns - packet.sent_ns) / 1e6
        if before is not None:
            jitter += (abs(transit - before) - jitter) / 16
        before = transit
    return jitter
