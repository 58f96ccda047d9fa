"""How labs ask: name servers for the addresses of application servers, SIP servers whether they are there."""

import contextlib
import socket
from collections.abc import Callable

import dns.exception
import dns.message
import dns.query
import dns.rdatatype
import dns.rrset
from daemon_kit.sip import new_request, parse_response

from rspdns_lab.chain.plan import SIP_PORT, SRV_OWNER
from rspdns_lab.net.network import Host, call_in

PATIENCE_S = 0.5


def look_up(ask: Callable[[dns.message.Message], dns.message.Message]) -> set[str]:
    """Return all addresses that somebody finds who asks by `ask`. Raises what that raises."""
    found: set[str] = set()
    questions = [(SRV_OWNER, "SRV")]
    while questions:
        reply = ask(dns.message.make_query(*questions.pop()))
        for rrset in reply.answer:
            for record in rrset:
                if record.rdtype == dns.rdatatype.SRV:
                    questions.append((record.target.to_text(), "A"))
                elif record.rdtype == dns.rdatatype.A:
                    found.add(record.address)
    return found


def answers_options(host: Host) -> bool:
    """Tell whether the SIP server of `host` answers on the host itself."""

    def ask() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(0.1)
            try:
                client.connect((host.address, SIP_PORT))
                request = new_request((host.address, SIP_PORT), client.getsockname(), sender="rspdns-lab")
                client.send(request.encode())
                response = parse_response(client.recv(4096))
            except OSError:
                return False
        return response is not None and request.is_answered_by(response) and response.shows_life

    return bool(call_in(host.path, ask))


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
        """Tell whether a name has an address; no answer within half a second means no."""
        return bool(self._ask(name, "A"))

    def targets(self, owner: str) -> frozenset[str]:
        """Return the targets of the SRV records of a name; none without an answer within half a second.

        An answer that came too late for an earlier question is thrown away first: read as the answer to
        this question, it would make this one's late in its turn, for ever.
        """
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
