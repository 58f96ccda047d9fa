"""Tries to reach SCTP ports and prints which it reached, as a JSON list. Run it where SCTP works.

Arguments: N ADDRESS:PORT, ...: it tries for a while, and for longer while it has not reached N of them. With
`--listen` for N it listens there instead, until it is killed.
"""

import contextlib
import json
import socket
import sys
import time

from registrar_config import SctpEndpoint

from rserpool import IPPROTO_SCTP, AssociationUp, SctpSocket

TIMEOUT_S = 3.0
PATIENCE_S = 20.0


def reached(expected: int, texts: list[str]) -> list[str]:
    endpoints = {text: SctpEndpoint.parse(text, 0) for text in texts}
    sockets = {text: SctpSocket(ipv6=endpoint.address.version == 6) for text, endpoint in endpoints.items()}
    for text, sock in sockets.items():
        sock.connect((str(endpoints[text].address), endpoints[text].port))
    found: set[str] = set()
    began_s = time.monotonic()
    while len(found) < len(texts):
        if time.monotonic() - began_s > (TIMEOUT_S if len(found) >= expected else PATIENCE_S):
            break
        for text, sock in sockets.items():
            with contextlib.suppress(BlockingIOError, OSError):
                if isinstance(sock.receive(), AssociationUp):
                    found.add(text)
        time.sleep(0.01)
    return sorted(found)


def listen(texts: list[str]) -> None:
    listeners = []
    for text in texts:
        endpoint = SctpEndpoint.parse(text, 0)
        family = socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET
        listeners.append(socket.socket(family, socket.SOCK_SEQPACKET, IPPROTO_SCTP))
        listeners[-1].bind((str(endpoint.address), endpoint.port))
        listeners[-1].listen(8)
    print("listening", flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    if sys.argv[1] == "--listen":
        listen(sys.argv[2:])
    print(json.dumps(reached(int(sys.argv[1]), sys.argv[2:])))
