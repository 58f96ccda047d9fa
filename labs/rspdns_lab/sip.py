"""Asks a SIP server whether it is there (OPTIONS over UDP, RFC 3261, section 11)."""

import secrets
import socket

from rspdns_lab.network import Host, call_in
from rspdns_lab.plan import SIP_PORT


def options_request(address: str, port: int, via: str) -> bytes:
    """Return an OPTIONS request to `address`, to be answered to `via` ("host:port")."""
    lines = [
        f"OPTIONS sip:{address}:{port} SIP/2.0",
        f"Via: SIP/2.0/UDP {via};branch=z9hG4bK{secrets.token_hex(8)};rport",
        "Max-Forwards: 70",
        f"From: <sip:lab@{via}>;tag={secrets.token_hex(4)}",
        f"To: <sip:{address}:{port}>",
        f"Call-ID: {secrets.token_hex(8)}",
        "CSeq: 1 OPTIONS",
        "Content-Length: 0",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answers_options(host: Host, timeout_s: float = 0.1) -> bool:
    """Tell whether the SIP server of `host` answers on the host itself."""

    def ask() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(timeout_s)
            try:
                client.connect((host.address, SIP_PORT))
                own_host, own_port = client.getsockname()
                client.send(options_request(host.address, SIP_PORT, f"{own_host}:{own_port}"))
                return client.recv(4096).startswith(b"SIP/2.0 200")
            except OSError:
                return False

    return bool(call_in(host.path, ask))
