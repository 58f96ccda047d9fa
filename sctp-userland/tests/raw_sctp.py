"""Throws bytes at everything in this network namespace that speaks SCTP, from a raw socket (needs root).

    python raw_sctp.py ADDRESS

It listens first: to every pair of ports it has seen, and to all ports from others, it sends chunks of all
sorts with a right checksum and a wrong verification tag (a stranger cannot know it), INIT chunks that lie,
and bytes that are no SCTP.
Prints how many packets it sent, and to how many pairs of ports.
"""

import contextlib
import random
import socket
import struct
import sys
import time

SCTP = 132
LISTEN_S = 1.5
IPV4_HEADER_BYTES = 20


def _crc32c_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc32c_table()


def packet(source: int, destination: int, tag: int, chunks: bytes) -> bytes:
    """An SCTP packet with a right checksum (RFC 9260, appendix A)."""
    return with_checksum(struct.pack(">HHII", source, destination, tag, 0) + chunks)


def with_checksum(packet: bytes) -> bytes:
    """The packet with the right checksum in place of its own."""
    packet = packet[:8] + bytes(4) + packet[12:]
    crc = 0xFFFFFFFF
    for byte in packet:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return packet[:8] + struct.pack("<I", crc ^ 0xFFFFFFFF) + packet[12:]


def chunk(kind: int, flags: int, value: bytes, length: int | None = None) -> bytes:
    """A chunk, its length as given or right."""
    said = 4 + len(value) if length is None else length
    return struct.pack(">BBH", kind, flags, said & 0xFFFF) + value + bytes(-len(value) % 4)


def listen(raw: socket.socket) -> set[tuple[int, int]]:
    """Every pair of ports that is in use, both ways round."""
    seen = set()
    end_s = time.monotonic() + LISTEN_S
    raw.settimeout(0.1)
    while time.monotonic() < end_s:
        with contextlib.suppress(TimeoutError):
            data = raw.recv(65535)[IPV4_HEADER_BYTES:]
            if len(data) >= 12:
                source, destination = struct.unpack(">HH", data[:4])
                seen |= {(source, destination), (destination, source)}
    return seen


def of_one_pair(source: int, destination: int, draw: random.Random) -> list[bytes]:
    """Packets for an association whose ports are known and whose tag is not."""
    made = []
    for kind in (*range(16), 64, 128, 129, 130, 192, 193, 255):
        value = draw.randbytes(draw.randrange(60))
        tag = 0 if kind == 1 else draw.randrange(1, 2**32)  # an INIT carries none
        made.append(packet(source, destination, tag, chunk(kind, draw.randrange(256), value)))
    return made


def lying_inits(source: int, destination: int, draw: random.Random) -> list[bytes]:
    """INIT chunks that are wrong: no streams, no tag, no window, parameters longer than the chunk."""
    fixed = struct.pack(">IIHHI", draw.getrandbits(32), 65536, 10, 10, draw.getrandbits(32))
    values = [
        bytes(16),
        fixed[:8] + bytes(4) + fixed[12:],
        fixed[:7],
        fixed + struct.pack(">HH", 5, 0xFFFF),
        fixed + struct.pack(">HH", 5, 0),
        fixed + struct.pack(">HH", 0xC0DE, 0),  # usrsctp 0.9.5 never ends, when the association exists
        fixed + b"\xc0\xde",
        fixed + struct.pack(">HHH", 0x8004, 6, 9),  # authentication that leads nowhere
        fixed + struct.pack(">HH4B", 0x8008, 8, 0xC1, 0x80, 0, 0),  # ASCONF without authentication
        fixed + struct.pack(">HH", 0x8002, 8) + bytes(4),
        fixed + struct.pack(">HH", 0xC000, 3) * 300,
        fixed + b"".join(struct.pack(">HH4B", 5, 8, 10, 0, 0, n % 256) for n in range(300)),
        fixed + b"".join(struct.pack(">HH", 6, 20) + draw.randbytes(16) for _ in range(60)),
        fixed + draw.randbytes(1000),
    ]
    made = [packet(source, destination, 0, chunk(1, 0, value)) for value in values]
    made += [packet(source, destination, 0, chunk(1, 0, fixed, length)) for length in (0, 3, 4, 0xFFFF)]
    made.append(packet(source, destination, 0, chunk(1, 0, fixed) + chunk(0, 3, draw.randbytes(40))))
    return made


def main(address: str) -> None:
    draw = random.Random(11)
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, SCTP)
    pairs = sorted(listen(raw))
    packets = [made for pair in pairs for make in (of_one_pair, lying_inits) for made in make(*pair, draw)]
    for port in sorted({destination for _, destination in pairs}):
        packets += lying_inits(draw.randrange(1024, 65536), port, draw)
    packets += [draw.randbytes(draw.randrange(1, 1400)) for _ in range(500)]
    right = packet(3863, 3863, 1, chunk(0, 3, bytes(20)))
    packets += [right[:length] for length in range(len(right))]
    packets += [right[:8] + draw.randbytes(4) + right[12:] for _ in range(20)]
    draw.shuffle(packets)
    for position, data in enumerate(packets):
        raw.sendto(data, (address, 0))
        if position % 20 == 0:
            time.sleep(0.005)
    print(len(packets), len(pairs))


if __name__ == "__main__":
    main(sys.argv[1])
