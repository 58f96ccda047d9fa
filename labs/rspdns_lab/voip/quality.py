"""Calls as a listener hears them: loss, gaps, jitter, delay, and the E-model's opinion. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_BUFFER_MS: Final = 40.0
"""The receiver's jitter buffer: a packet that is later than the earliest by more counts as lost."""
_DEFAULT_R: Final = 93.2
"""ITU-T G.107 with all its defaults: a call without packets, delay or echo."""


@dataclass(frozen=True)
class Codec:
    """A codec and how it is sent. `impairment`, `robustness`: Ie and Bpl of ITU-T G.113, Appendix I.

    The appendix gives G.711 with loss concealment a Bpl of 25.1. It has none for G.726 and GSM 06.10, for
    which that of GSM EFR stands in.
    """

    title: str
    speech_bytes: int
    packet_ms: int
    rtp_type: int
    impairment: float
    robustness: float


CODECS: Final = {
    "g711": Codec("G.711", 160, 20, 8, 0.0, 25.1),
    "g726": Codec("G.726, 32 kbit/s", 80, 20, 2, 7.0, 10.0),
    "gsm": Codec("GSM, 50 packets/s", 33, 20, 3, 20.0, 10.0),
    "gsm-25": Codec("GSM, 25 packets/s", 66, 40, 3, 20.0, 10.0),
}
MEDIA: Final = {"rtp": "RTP", "iax2": "IAX2", "trunk": "IAX2, trunked"}
_HEADERS: Final = 14 + 20 + 8
_SPEECH_HEADERS: Final = {"rtp": 12, "iax2": 4}


def frame_bytes(codec: Codec, medium: str) -> int:
    """Return the length of the Ethernet frame that carries a packet of one call, without its checksum."""
    return _HEADERS + _SPEECH_HEADERS[medium] + codec.speech_bytes


class CallAccount(NamedTuple):
    """The generator's account of one direction of a call."""

    sent: int
    received: int
    lost: int
    runs: int
    longest: int
    highest: int
    duplicates: int
    reordered: int
    late: int
    jitter_us: float
    delay_us: float


@dataclass(frozen=True)
class CallQuality:
    """All directions of all calls. `longest_gap_ms`: packets lost in a row; `glitch_ms`: all that a call
    lost; both as speech, of the worst. `cut_off`: those silent to the end."""

    directions: int
    intact: int
    cut_off: int
    lost: int
    duplicates: int
    reordered: int
    late: int
    longest_gap_ms: float
    glitch_ms: float
    jitter_ms: float
    mos: float
    worst_mos: float


def judge(accounts: Sequence[CallAccount], codec: Codec) -> CallQuality:
    """Return the quality of at least one call."""
    opinions = [opinion(rating(account, codec)) for account in accounts]
    heard = [account for account in accounts if account.received]
    return CallQuality(
        directions=len(accounts),
        intact=sum(account.lost == 0 for account in accounts),
        cut_off=sum(_is_cut_off(account, codec) for account in accounts),
        lost=sum(account.lost for account in accounts),
        duplicates=sum(account.duplicates for account in accounts),
        reordered=sum(account.reordered for account in accounts),
        late=sum(account.late for account in accounts),
        longest_gap_ms=max(account.longest for account in accounts) * codec.packet_ms,
        glitch_ms=max(account.lost for account in accounts) * codec.packet_ms,
        jitter_ms=round(statistics.mean([each.jitter_us for each in heard] or [0.0]) / 1000, 3),
        mos=round(statistics.mean(opinions), 2),
        worst_mos=round(min(opinions), 2),
    )


def rating(account: CallAccount, codec: Codec) -> float:
    """Return R of the E-model (ITU-T G.107) with its defaults, without echo. The delay is that of the path,
    of filling a packet, and of the jitter buffer."""
    gone = account.lost + account.late
    share = min(1.0, gone / max(1, account.sent))
    mean_run = gone / max(1, account.runs + account.late)
    burst_ratio = max(1.0, mean_run * (1 - share))
    delay_ms = account.delay_us / 1000 + codec.packet_ms + _BUFFER_MS
    return _DEFAULT_R - delay_impairment(delay_ms) - loss_impairment(codec, 100 * share, burst_ratio)


def delay_impairment(delay_ms: float) -> float:
    """Return Idd of ITU-T G.107: the loss of interaction by an absolute delay."""
    if delay_ms <= 100:
        return 0.0
    x, sixth = math.log2(delay_ms / 100), 1 / 6
    return 25 * float((1 + x**6) ** sixth - 3 * (1 + (x / 3) ** 6) ** sixth + 2)


def loss_impairment(codec: Codec, lost_percent: float, burst_ratio: float) -> float:
    """Return Ie,eff of ITU-T G.107: the codec's impairment with lost packets."""
    if lost_percent <= 0:
        return codec.impairment
    share = lost_percent / (lost_percent / burst_ratio + codec.robustness)
    return codec.impairment + (95 - codec.impairment) * share


def opinion(r: float) -> float:
    """Return the mean opinion score of a rating R (ITU-T G.107, annex B)."""
    if r <= 0:
        return 1.0
    return 4.5 if r >= 100 else 1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6


def _is_cut_off(account: CallAccount, codec: Codec) -> bool:
    """Tell whether nothing arrived of the last second."""
    silent = account.sent - (account.highest + 1 if account.received else 0)
    return silent * codec.packet_ms >= 1000
