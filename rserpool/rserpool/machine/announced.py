"""The registrars that announced themselves (ASAP Server Announce, RFC 5352, section 2.2.10), without sockets.

Announcements carry no proof of anything, so the table is bounded and takes only those of networks in which
registrars may be.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from rserpool import asap
from rserpool.errors import DecodeError
from rserpool.machine.base import SctpAddress
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import Protocol

EXPIRY_S = 10.0
"""How long a registrar that is not heard is remembered. rspregistrar announces itself every second."""
MOST_REGISTRARS = 16
"""Further ones are ignored: who is known is not driven out by strangers."""
MOST_OF_A_HOST = 4
"""Registrars at one address; further ones are ignored, so that one host can't fill the table."""
MAX_ANNOUNCE_BYTES = 1500


_LINK_LOCAL_SCOPE = 2


def group_problem(group: IPv4Address | IPv6Address) -> str:
    """Return why registrars can't be found by announcements to this address; "" if they can.

    An announcement to an IPv6 group of link-local or narrower scope (RFC 4291, section 2.7) comes from a
    link-local address, and that of rspregistrar tells no other.
    """
    if not group.is_multicast:
        return "no multicast address: 239.0.0.50, say, or ff05::50"
    if group.version == 6 and group.packed[1] & 0xF <= _LINK_LOCAL_SCOPE:
        return (
            "announcements to it come from link-local addresses, at which no registrar can be reached: take "
            "a wider scope, ff05::50, say"
        )
    return ""


class RegistrarTable:
    """The registrars that were heard lately.

    The last one known is never forgotten: it is the best guess there is.

    `accept`: the networks in which registrars are.
    """

    def __init__(self, accept: Sequence[IPv4Network | IPv6Network]) -> None:
        self._accept = tuple(accept)
        self._heard_s: dict[RegistrarAddress, float] = {}
        self.ignored = 0
        """Datagrams that were no announcement, came from elsewhere, or were of one registrar too many."""

    @property
    def registrars(self) -> tuple[RegistrarAddress, ...]:
        """The registrars that are there, in a steady order."""
        return tuple(sorted(self._heard_s))

    @property
    def next_deadline_s(self) -> float | None:
        """When `expire` may have somebody to forget."""
        if len(self._heard_s) < 2:
            return None
        return min(self._heard_s.values()) + EXPIRY_S

    def received(self, data: bytes, source: SctpAddress, now: float) -> bool:
        """Take a datagram from `source`; return whether it made a registrar known."""
        registrar = self._registrar(data, source)
        is_new = registrar is not None and registrar not in self._heard_s
        if registrar is None or (is_new and self._is_full(registrar.host)):
            self.ignored += 1
            return False
        self._heard_s[registrar] = now
        return is_new

    def expire(self, now: float) -> bool:
        """Forget who is silent for too long; return whether somebody was."""
        silent = sorted(
            (heard_s, registrar) for registrar, heard_s in self._heard_s.items() if now >= heard_s + EXPIRY_S
        )
        if len(silent) == len(self._heard_s):
            silent = silent[:-1]
        for _, registrar in silent:
            del self._heard_s[registrar]
        return bool(silent)

    def _is_full(self, host: str) -> bool:
        of_host = sum(registrar.host == host for registrar in self._heard_s)
        return len(self._heard_s) >= MOST_REGISTRARS or of_host >= MOST_OF_A_HOST

    def _registrar(self, data: bytes, source: SctpAddress) -> RegistrarAddress | None:
        """Return who announces itself: at the address the datagram came from, whatever it tells.

        The port is that of its SCTP transport with this address. rspregistrar sends no transport, and its
        announcements from the port at which it speaks ASAP.
        """
        address = ip_address(source[0].partition("%")[0])
        if not any(address in network for network in self._accept):
            return None
        if len(data) > MAX_ANNOUNCE_BYTES:
            return None
        try:
            message = asap.decode(data)
        except DecodeError:
            return None
        if not isinstance(message, asap.ServerAnnounce):
            return None
        transports = [transport for transport in message.transports if transport.protocol is Protocol.SCTP]
        port = (
            next((transport.port for transport in transports if address in transport.addresses), 0)
            if transports
            else source[1]
        )
        return RegistrarAddress(str(address), port) if port else None
