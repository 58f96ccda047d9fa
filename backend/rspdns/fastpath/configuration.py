"""The table [fastpath] of rspdns.toml."""

from __future__ import annotations

from typing import Annotated

from daemon_kit.config_file import StrictModel
from daemon_kit.files import PathText
from pydantic import Field


class FastPathConfig(StrictModel):
    """Answers from the kernel. Without `socket` there are none."""

    socket: PathText | None = None
    """Where rspdns-fastpath listens: /run/rspdns/fastpath.sock."""
    udp_payload: Annotated[int, Field(ge=512, le=4096)] = 1232
    """PowerDNS's `udp-truncation-threshold`: it stands in the OPT record of every answer, here too."""
