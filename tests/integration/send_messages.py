"""Sends messages to one SCTP endpoint, unchecked, and reads its answers away. Run it where SCTP works.

Arguments: address, port, payload protocol. Input: a message in hex digits on each line. An association that
the other side closes is set up again; exit status 1 when that fails.
"""

import contextlib
import sys
import time

from rserpool import AssociationUp, SctpSocket

TIMEOUT_S = 30


def connected(address: str, port: int) -> tuple[SctpSocket, int]:
    endpoint = SctpSocket()
    endpoint.connect((address, port))
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            if isinstance(came := endpoint.receive(), AssociationUp):
                return endpoint, came.association
        time.sleep(0.01)
    sys.exit(f"no association with {address}:{port} within {TIMEOUT_S} s")


def main() -> None:
    address, port, ppid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    endpoint, association = connected(address, port)
    for line in sys.stdin:
        try:
            endpoint.send(association, ppid, bytes.fromhex(line))
        except OSError:
            endpoint.close()
            endpoint, association = connected(address, port)
            endpoint.send(association, ppid, bytes.fromhex(line))
        time.sleep(0.002)
        with contextlib.suppress(OSError):
            while True:
                endpoint.receive()
    time.sleep(0.3)


if __name__ == "__main__":
    main()
