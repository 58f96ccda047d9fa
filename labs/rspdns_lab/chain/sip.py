"""Asks a SIP server whether it is there (OPTIONS over UDP, RFC 3261, section 11)."""

import socket

from daemon_kit.sip import new_request, parse_response

from rspdns_lab.chain.plan import SIP_PORT
from rspdns_lab.net.network import Host, call_in


def answers_options(host: Host, timeout_s: float = 0.1) -> bool:
    """Tell whether the SIP server of `host` answers on the host itself."""

    def ask() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(timeout_s)
            try:
                client.connect((host.address, SIP_PORT))
                request = new_request((host.address, SIP_PORT), client.getsockname(), sender="rspdns-lab")
                client.send(request.encode())
                response = parse_response(client.recv(4096))
            except OSError:
                return False
        return response is not None and request.is_answered_by(response) and response.shows_life

    return bool(call_in(host.path, ask))
