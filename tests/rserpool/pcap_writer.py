"""Writes captures of SCTP packets, for tshark and for the tests of our own reader."""

import struct

RAW_IP = 101
FIRST, LAST = 2, 1
"""Flags of a DATA chunk: it holds the first, the last part of its user message."""


def data_chunk(tsn: int, ppid: int, data: bytes, flags: int = FIRST | LAST) -> bytes:
    """Return an SCTP DATA chunk."""
    return struct.pack(">BBHIHHI", 0, flags, 16 + len(data), tsn, 0, 0, ppid) + data + bytes(-len(data) % 4)


def sctp_packet(*chunks: bytes, source: int = 3863, destination: int = 1024) -> bytes:
    """Return an IPv4 packet with an SCTP packet in it (no checksums)."""
    segment = struct.pack(">HHII", source, destination, 0xCAFE, 0) + b"".join(chunks)
    addresses = bytes([192, 0, 2, 1, 192, 0, 2, 2])
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, 132, 0) + addresses + segment


def pcap(*packets: bytes) -> bytes:
    """Return a capture file of IP packets."""
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 0xFFFF, RAW_IP)
    return header + b"".join(
        struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet for packet in packets
    )
