"""The destinations of members: address, transport and port, as packets name them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from daemon_kit.addresses import ListenAddress
from pool_user import Member

from rserpool import Protocol

Address = IPv4Address | IPv6Address
AddressPort = tuple[Address, int]


@dataclass(frozen=True, slots=True)
class Destination:
    """One address, transport and port: what a packet's destination is compared with."""

    address: Address
    protocol: Protocol
    port: int

    @property
    def endpoint(self) -> tuple[Address, int]:
        """Address and port, whatever the transport."""
        return self.address, self.port

    @property
    def where(self) -> str:
        """Address and port as people write them."""
        return str(ListenAddress(self.address, self.port))

    @property
    def sort_key(self) -> tuple[int, int, str, int]:
        """For an order that does not change: IPv4 first, then by number."""
        return self.address.version, int(self.address), self.protocol.name, self.port

    def __str__(self) -> str:
        return f"{self.protocol.name.lower()} {self.where}"


def destinations_of(member: Member, also: Collection[Protocol] = ()) -> Iterator[Destination]:
    """Yield every destination of a member: of the transport it registered, and of those in `also`."""
    for protocol in dict.fromkeys((member.protocol, *also)):
        for address in member.addresses:
            yield Destination(address, protocol, member.port)
