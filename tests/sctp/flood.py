"""Floods a host with SCTP packets, from addresses that it does not have (needs root).

    python -m tests.sctp.flood KIND ADDRESS SECONDS

KIND: `inits`, from thousands of addresses of 10.9.0.0/16 to port 5000; `closed`, the same to a port that nobody
listens at; `forged`, from 10.1.0.1 and port 7000, for an association whose tag they do not know. Prints how many
packets it sent.
"""

import random
import socket
import struct
import sys
import time

from tests.support.raw_sctp import SCTP, chunk, lying_inits, of_one_pair, packet

PORT, CLOSED_PORT, PEER, PEERS_PORT = 5000, 5999, "10.1.0.1", 7000
DIFFERENT = 4000
"""So many packets are made, and sent again and again."""


def from_address(source: str, destination: str, sctp: bytes) -> bytes:
    """An IPv4 packet; the kernel fills in what is 0."""
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(sctp), 0, 0, 64, SCTP, 0)
    return header + socket.inet_aton(source) + socket.inet_aton(destination) + sctp


def inits(destination: str, port: int, draw: random.Random) -> list[bytes]:
    """Beginnings of associations that are right in everything but that nobody wants them."""
    made = []
    for _ in range(DIFFERENT):
        source = f"10.9.{draw.randrange(256)}.{draw.randrange(1, 255)}"
        value = struct.pack(">IIHHI", draw.randrange(1, 2**32), 65536, 10, 10, draw.getrandbits(32))
        sctp = packet(draw.randrange(1024, 65536), port, 0, chunk(1, 0, value))
        made.append(from_address(source, destination, sctp))
    return made


def forged(destination: str, draw: random.Random) -> list[bytes]:
    """Everything that could disturb an association, with tags that are guessed."""
    made: list[bytes] = []
    while len(made) < DIFFERENT:
        made += of_one_pair(PEERS_PORT, PORT, draw) + lying_inits(PEERS_PORT, PORT, draw)
    return [from_address(PEER, destination, sctp) for sctp in made]


def main(kind: str, address: str, for_s: float) -> None:
    draw = random.Random(9)
    made = (
        forged(address, draw)
        if kind == "forged"
        else inits(address, PORT if kind == "inits" else CLOSED_PORT, draw)
    )
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        print("made", flush=True)
        end_s = time.monotonic() + for_s
        while time.monotonic() < end_s:
            for data in made:
                try:
                    raw.sendto(data, (address, 0))
                    sent += 1
                except OSError:  # the device's queue is full
                    time.sleep(0.001)
    print(sent)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
