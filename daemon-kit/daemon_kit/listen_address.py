"""Addresses to listen at, as configuration files write them: "127.0.0.1:8054", "[::1]:8054"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated

from pydantic import AfterValidator

from daemon_kit.ip_text import read_address


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An IP address and a port, 1 to 65535."""

    address: IPv4Address | IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Read "127.0.0.1:8054" or "[::1]:8054". Raises ValueError."""
        found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})", text)
        if found is None:
            raise ValueError('must be an IP address and a port: "127.0.0.1:8054" or "[::1]:8054"')
        address = read_address(found[1] or found[2])
        if (address.version == 6) != (found[1] is not None):
            raise ValueError("an IPv6 address stands in brackets, an IPv4 address does not")
        port = int(found[3])
        if not 1 <= port <= 65535:
            raise ValueError(f"a port is 1 to 65535, not {port}")
        return cls(address, port)

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this host reach it."""
        return self.address.is_loopback

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"


def _check(text: str) -> str:
    ListenAddress.parse(text)
    return text


ListenText = Annotated[str, AfterValidator(_check)]
"""An address to listen at, kept as text; `ListenAddress.parse()` reads it."""
