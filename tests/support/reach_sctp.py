"""Tries to reach SCTP ports and prints which it reached, as a JSON list. Run it where SCTP works.

Arguments: ADDRESS:PORT, ... With `--listen PORT` it listens there instead, until it is killed.
"""

import contextlib
import json
import socket
import sys
import time

from registrar_config.options import Endpoint
from registrar_config.preflight import IPPROTO_SCTP
from rserpool.sctp import AssociationUp, SctpSocket

TIMEOUT_S = 3.0


def reached(texts: list[str]) -> list[str]:
    endpoints = {text: Endpoint.parse(text, 0) for text in texts}
    sockets = {text: SctpSocket() for text in texts}
    for text, one in sockets.items():
        one.connect((str(endpoints[text].address), endpoints[text].port))
    found: set[str] = set()
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s and len(found) < len(texts):
        for text, one in sockets.items():
            with contextlib.suppress(BlockingIOError, OSError):
                if isinstance(one.receive(), AssociationUp):
                    found.add(text)
        time.sleep(0.01)
    return sorted(found)


def listen(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, IPPROTO_SCTP) as listener:
        listener.bind(("0.0.0.0", port))
        listener.listen(8)
        print("listening", flush=True)
        while True:
            time.sleep(60)


if __name__ == "__main__":
    if sys.argv[1] == "--listen":
        listen(int(sys.argv[2]))
    print(json.dumps(reached(sys.argv[1:])))
