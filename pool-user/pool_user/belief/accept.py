"""Nobody joins uninvited (rule 6)."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from rserpool import Transport

REFUSED = "refused"
"""How the reason of a PE begins that does not count."""


def accepted(
    addresses: Sequence[IPv4Address | IPv6Address], accept: Sequence[IPv4Network | IPv6Network]
) -> tuple[IPv4Address | IPv6Address, ...]:
    """Return the addresses that are in one of the networks, each once, in their order."""
    if len(addresses) == 1:
        return tuple(addresses) if _is_in(addresses[0], accept) else ()
    return tuple(dict.fromkeys(address for address in addresses if _is_in(address, accept)))


def _is_in(address: IPv4Address | IPv6Address, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    for network in networks:  # noqa: SIM110 - any() takes twice the time, for each member of each view
        if address.version == network.version and address in network:
            return True
    return False


def why_refused(transport: Transport, accept: Sequence[IPv4Network | IPv6Network]) -> str | None:
    """Say why a PE with this user transport does not count, None if it does."""
    if not transport.port:
        return f"{REFUSED}: its port is 0"
    if accepted(transport.addresses, accept):
        return None
    listed = ", ".join(str(address) for address in transport.addresses[:4]) or "none"
    return f"{REFUSED}: not in the pool's accept networks: {listed}"
