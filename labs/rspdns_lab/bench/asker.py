"""Asks a name server about one name after the other, over one socket."""

import contextlib
import socket

import dns.exception
import dns.message
import dns.query
import dns.rrset

PATIENCE_S = 0.5


class Asker:
    """Asks the name server at `address`. Must be made in the network namespace it is to ask from."""

    def __init__(self, address: str, port: int = 53) -> None:
        self._address, self._port = address, port
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def close(self) -> None:
        """Ask no more."""
        self._socket.close()

    def finds(self, name: str) -> bool:
        """Tell whether a name has an address; no answer within half a second means no.

        What came too late for an earlier question is thrown away first: read as the answer to this one it
        would make this one's late in its turn, for ever.
        """
        return bool(self._ask(name, "A"))

    def targets(self, owner: str) -> frozenset[str]:
        """Return the targets of the SRV records of a name; none without an answer."""
        found = (record for rrset in self._ask(owner, "SRV") for record in rrset)
        return frozenset(str(record.target).rstrip(".") for record in found)

    def _ask(self, name: str, qtype: str) -> list[dns.rrset.RRset]:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(65535)
        query = dns.message.make_query(name, qtype)
        try:
            reply = dns.query.udp(
                query, self._address, timeout=PATIENCE_S, port=self._port, sock=self._socket
            )
        except (OSError, dns.exception.DNSException):
            return []
        return reply.answer
