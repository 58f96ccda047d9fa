"""Synthetic VoIP: how large its packets are, how often they come, what a receiver makes of them. Pure."""

import statistics
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rspdns_lab.observe.percentiles import percentile

IP_UDP_BYTES: Final = 28
RTP_HEADER_BYTES: Final = 12
"""RFC 3550, without contributing sources."""
IAX2_MINI_FRAME_BYTES: Final = 4
"""RFC 5456, section 8.1.2: what carries voice once a call is up."""
_STAMP: Final = struct.Struct("!BHIQ")
"""Stream, call, sequence number, sending time in ns: the head of each packet."""


@dataclass(frozen=True)
class Codec:
    """A voice codec: payload bytes of one packet, and ms of speech in it."""

    payload_bytes: int
    packet_ms: int


CODECS: Final = MappingProxyType(
    {
        "g711": Codec(160, 20),  # 64 kbit/s
        "g726": Codec(80, 20),  # 32 kbit/s
        "gsm": Codec(33, 20),  # 13.2 kbit/s
    }
)
FRAMINGS: Final = MappingProxyType({"rtp": RTP_HEADER_BYTES, "iax2": IAX2_MINI_FRAME_BYTES})


@dataclass(frozen=True)
class Stream:
    """A number of calls at a time, each one way, in this codec and framing; `number` tells streams apart."""

    number: int
    calls: int
    codec: str = "g711"
    framing: str = "rtp"

    @property
    def packets_per_s(self) -> float:
        """The packets a second of one call."""
        return 1000 / CODECS[self.codec].packet_ms

    @property
    def packet_bytes(self) -> int:
        """UDP payload of one packet: the framing's header and the codec's payload."""
        return FRAMINGS[self.framing] + CODECS[self.codec].payload_bytes

    @property
    def kilobits_per_s(self) -> float:
        """The bit rate of all calls, with IP and UDP headers."""
        return self.calls * self.packets_per_s * (self.packet_bytes + IP_UDP_BYTES) * 8 / 1000

    def packet(self, call: int, sequence: int, now_ns: int) -> bytes:
        """Return one packet: numbered and stamped with its sending time, of the right size."""
        return _STAMP.pack(self.number, call, sequence, now_ns).ljust(self.packet_bytes, b"\0")


@dataclass(frozen=True)
class Sent:
    """One packet sent; monotonic time in ns."""

    call: int
    sequence: int
    at_ns: int


@dataclass(frozen=True)
class Received:
    """One packet received, with its sending time; monotonic times in ns."""

    stream: int
    call: int
    sequence: int
    sent_ns: int
    at_ns: int


def read_packet(packet: bytes, now_ns: int) -> Received | None:
    """Return what a packet says, or None when it is too short to be one of ours."""
    if len(packet) < _STAMP.size:
        return None
    stream, call, sequence, sent_ns = _STAMP.unpack_from(packet)
    return Received(stream, call, sequence, sent_ns, now_ns)


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


def judge(stream: Stream, sent: Sequence[Sent], received: Iterable[Received]) -> Quality:
    """Return the quality of all calls; jitter as in RFC 3550, section 6.4.1, the mean of the calls."""
    arrived = {(one.call, one.sequence): one for one in received}
    lost = dict.fromkeys(range(stream.calls), 0)
    for one in sent:
        if (one.call, one.sequence) not in arrived:
            lost[one.call] = lost.get(one.call, 0) + 1
    delays = [(one.at_ns - one.sent_ns) / 1e6 for one in arrived.values()]
    per_packet_ms = 1000 / stream.packets_per_s
    total = sum(lost.values())
    jitters = [_jitter_ms(one for one in arrived.values() if one.call == call) for call in lost]
    return Quality(
        sent=len(sent),
        lost=total,
        glitch_ms=round(total / stream.calls * per_packet_ms, 1),
        worst_glitch_ms=round(max(lost.values()) * per_packet_ms, 1),
        delay_p50_ms=round(percentile(delays, 50), 3),
        delay_p99_ms=round(percentile(delays, 99), 3),
        jitter_ms=round(statistics.mean(jitters), 3),
    )


def _jitter_ms(received: Iterable[Received]) -> float:
    jitter = 0.0
    before: float | None = None
    for one in sorted(received, key=lambda one: one.at_ns):
        transit = (one.at_ns - one.sent_ns) / 1e6
        if before is not None:
            jitter += (abs(transit - before) - jitter) / 16
        before = transit
    return jitter
