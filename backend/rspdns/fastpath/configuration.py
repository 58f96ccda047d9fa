"""The table [fastpath] of rspdns.toml."""

from __future__ import annotations

from typing import Annotated, Self

from daemon_kit.config_file import StrictModel
from daemon_kit.files import PathText
from pydantic import Field, model_validator

PerSecond = Annotated[int, Field(ge=1, le=1_000_000)]


class LimitConfig(StrictModel):
    """Limits the questions that one source prefix may ask. At least one of the two rates is needed.

    A prefix may ask at once what it may ask in a second. Every `slip`-th question above that, and the first,
    is answered with TC: a client at its own address asks again over TCP. The others get no answer.
    """

    deep_per_s: PerSecond | None = None
    """Questions a second for names with more labels than any name of their zone. Live names never have."""
    all_per_s: PerSecond | None = None
    """Questions a second for any names, those that the kernel answers too."""
    ipv4_prefix_bits: Annotated[int, Field(ge=8, le=32)] = 24
    """IPv4 addresses that agree in so many bits count as one source."""
    ipv6_prefix_bits: Annotated[int, Field(ge=16, le=128)] = 56
    """The same for IPv6."""
    slip: Annotated[int, Field(ge=1, le=10)] = 2
    """Of so many questions above the rate one is answered with TC; 1: all are."""

    @model_validator(mode="after")
    def _has_a_rate(self) -> Self:
        if self.deep_per_s is None and self.all_per_s is None:
            raise ValueError("limits nothing: set deep_per_s, all_per_s or both, or leave the table out")
        return self


class FastPathConfig(StrictModel):
    """Answers from the kernel. Without `socket` there are none."""

    socket: PathText | None = None
    """Where rspdns-fastpath listens: /run/rspdns-fastpath/fastpath.sock."""
    udp_payload: Annotated[int, Field(ge=512, le=4096)] = 1232
    """PowerDNS's `udp-truncation-threshold`: it stands in the OPT record of every answer, here too."""
    limit: LimitConfig | None = None
    """How many questions of one source are too many. Without it nothing is limited."""
