"""Addresses of this host."""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address


class NoLocalAddress(Exception):  # noqa: N818 - reads as what it is
    """This host has no address towards a registrar; the message says why."""


def address_towards(host: str, port: int) -> Address:
    """Return the address this host uses to reach `host` (nothing is sent). Raises NoLocalAddress."""
    try:
        target = ip_address(host)
        with socket.socket(family_of(target), socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))
            return ip_address(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise NoLocalAddress(f"no way to {host}: {problem}") from None


def is_reachable(address: Address) -> bool:
    """Tell whether a pool can use `address`; rspregistrar passes over loopback and link-local ones."""
    return not (
        address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    )


def family_of(address: Address) -> socket.AddressFamily:
    """Return the family of the sockets that reach `address`."""
    return socket.AF_INET if address.version == 4 else socket.AF_INET6
