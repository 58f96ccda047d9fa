"""The registrars that announced themselves (ASAP Server Announce, RFC 5352, section 2.2.10), without sockets.

Announcements carry no proof of anything, so the table is bounded and takes only those of networks in which
registrars may be.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from rserpool import asap
from rserpool.errors import DecodeError
from rserpool.parameters import Protocol
from rserpool.registrar_choice import RegistrarAddress

EXPIRY_S = 10.0
"""A registrar not heard for so long is forgotten. rspregistrar announces itself every second."""
MOST_REGISTRARS = 16
"""Further ones are ignored: who is known is not driven out by strangers."""
MAX_ANNOUNCE_BYTES = 1500


class RegistrarTable:
    """Who was heard lately. The last one known is never forgotten: it is the best guess there is.

    `accept`: the networks in which registrars are.
    """

    def __init__(self, accept: Sequence[IPv4Network | IPv6Network]) -> None:
        self._accept = tuple(accept)
        self._heard_s: dict[RegistrarAddress, float] = {}
        self.ignored = 0
        """Datagrams that were no announcement, came from elsewhere, or were of one registrar too many."""

    @property
    def registrars(self) -> tuple[RegistrarAddress, ...]:
        """Who is there, in a steady order."""
        return tuple(sorted(self._heard_s))

    @property
    def next_deadline_s(self) -> float | None:
        """When `expire` may have somebody to forget."""
        if len(self._heard_s) < 2:
            return None
        return min(self._heard_s.values()) + EXPIRY_S

    def received(self, data: bytes, source: tuple[str, int], now: float) -> bool:
        """Take a datagram from `source`; return whether it made a registrar known."""
        registrar = self._registrar(data, source)
        is_new = registrar is not None and registrar not in self._heard_s
        if registrar is None or (is_new and len(self._heard_s) >= MOST_REGISTRARS):
            self.ignored += 1
            return False
        self._heard_s[registrar] = now
        return is_new

    def expire(self, now: float) -> bool:
        """Forget who is silent for too long; return whether somebody was."""
        silent = sorted((heard_s, one) for one, heard_s in self._heard_s.items() if now >= heard_s + EXPIRY_S)
        if len(silent) == len(self._heard_s):
            silent = silent[:-1]
        for _, one in silent:
            del self._heard_s[one]
        return bool(silent)

    def _registrar(self, data: bytes, source: tuple[str, int]) -> RegistrarAddress | None:
        """Return who announces itself: by its SCTP transport, or without one by whence the datagram came.

        rspregistrar sends no transport, and its announcements from the port at which it speaks ASAP.
        """
        if len(data) > MAX_ANNOUNCE_BYTES:
            return None
        try:
            message = asap.decode(data)
        except DecodeError:
            return None
        if not isinstance(message, asap.ServerAnnounce):
            return None
        told = [
            (str(address), transport.port)
            for transport in message.transports
            if transport.protocol is Protocol.SCTP
            for address in transport.addresses
        ]
        for host, port in told or [source]:
            address = ip_address(host.partition("%")[0])
            if port and any(address in network for network in self._accept):
                return RegistrarAddress(str(address), port)
        return None
