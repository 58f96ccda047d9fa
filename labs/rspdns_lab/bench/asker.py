"""Asks a name server about one name after the other, over one socket."""

import contextlib
import socket

import dns.exception
import dns.message
import dns.query

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
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(65535)
        query = dns.message.make_query(name, "A")
        try:
            reply = dns.query.udp(
                query, self._address, timeout=PATIENCE_S, port=self._port, sock=self._socket
            )
        except (OSError, dns.exception.DNSException):
            return False
        return bool(reply.answer)
