"""The table [fastpath] of rspdns.toml."""

from __future__ import annotations

from typing import Annotated

from daemon_kit.config_file import StrictModel
from daemon_kit.files import PathText
from pydantic import Field

PerSecond = Annotated[int, Field(ge=0, le=1_000_000)]


class LimitConfig(StrictModel):
    """Limits the questions that one source prefix may ask. A rate of 0 limits nothing.

    A prefix may ask at once what it may ask in a second. Every `slip`-th question above that, and the first,
    is answered with TC: a client at its own address asks again over TCP. The others get no answer.
    """

    deep_per_s: PerSecond = 0
    """Questions a second for names with more labels than any name of their zone. Live names never have."""
    all_per_s: PerSecond = 10_000
    """Questions a second for any names, those that the kernel answers too. An answer is up to 8 times as long
    as its question: the limit bounds what a forged source has sent to its victim, at 41 Mbit/s."""
    ipv4_prefix_bits: Annotated[int, Field(ge=8, le=32)] = 24
    """IPv4 addresses that agree in this number of bits count as one source."""
    ipv6_prefix_bits: Annotated[int, Field(ge=16, le=128)] = 56
    """The same for IPv6."""
    slip: Annotated[int, Field(ge=1, le=10)] = 2
    """One in this number of questions above the rate is answered with TC; 1: all are."""


class FastPathConfig(StrictModel):
    """Answers from the kernel. Without `socket` there are none."""

    socket: PathText | None = None
    """The socket of rspdns-fastpath: /run/rspdns-fastpath/fastpath.sock."""
    udp_payload: Annotated[int, Field(ge=512, le=4096)] = 1232
    """PowerDNS's `udp-truncation-threshold`: it stands in the OPT record of every answer, here too."""
    client_subnet: bool = False
    """Whether names with `near` are answered by the prefix that a resolver tells (EDNS Client Subnet). True
    where PowerDNS does that (`rspdns pdns-conf --near`); otherwise it is asked."""
    limit: LimitConfig = LimitConfig()
    """How many questions of one source are too many."""
