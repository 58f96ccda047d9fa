"""Reads captures (pcap files): every ASAP and ENRP message in them, and whether our codec agrees with it.

    python -m tests.rserpool.captures FILE.pcap     prints what is in a capture and what is wrong with it

Reads classic pcap (tcpdump's; convert others by `editcap -F pcap`): IPv4, IPv6, SCTP with reassembly, UDP.

Messages captured before the RFCs are renumbered (rsplib's published demo capture is of January 2007). The
drafts of that time had no DCCP and UDP-Lite transports, so every later parameter had a smaller number; and
Server Information had four more bytes of flags. All else is as in the RFCs.
"""

import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from rserpool.errors import DecodeError

from rserpool import asap, enrp

NUMBERS = {1: 1, 2: 2, 3: 4, 4: 5, 5: 6, 6: 8, 7: 9, 8: 10, 9: 11, 10: 12, 11: 13, 12: 14, 13: 15}
SERVER_INFORMATION = 9
OLD_NUMBERS = {new: old for old, new in NUMBERS.items()}
# Bytes of fixed fields in front of the parameters inside: transports, pool element, server information.
FIXED_IN_PARAMETER = {3: 4, 4: 4, 5: 4, 8: 12, SERVER_INFORMATION: 8}
FIXED_IN_MESSAGE = {
    asap.PPID: {7: 4, 10: 4},
    enrp.PPID: {1: 8, 2: 8, 3: 8, 4: 12, 5: 8, 6: 8, 7: 12, 8: 12, 9: 12, 10: 8},
}
Change = Callable[[int, bytes], tuple[int, bytes]]
ETHERNET, RAW, LINUX_COOKED, LINUX_COOKED_2 = 1, 101, 113, 276
LINK_HEADER = {ETHERNET: 14, RAW: 0, LINUX_COOKED: 16, LINUX_COOKED_2: 20}
SCTP, UDP = 132, 17
CODECS: dict[int, ModuleType] = {asap.PPID: asap, enrp.PPID: enrp}
RAW_IP = 101
FIRST, LAST = 2, 1
"""Flags of a DATA chunk: it holds the first, the last part of its user message."""


def renumber(ppid: int, data: bytes) -> tuple[bytes, list[bytes]]:
    """Return the message as the RFCs would write it, and the flags of each Server Information, left out."""
    flags: list[bytes] = []

    def change(number: int, value: bytes) -> tuple[int, bytes]:
        if number == SERVER_INFORMATION:
            flags.append(value[4:8])
            value = value[:4] + value[8:]
        return NUMBERS.get(number, number), value

    return _message(ppid, data, FIXED_IN_PARAMETER, change), flags


def number_back(ppid: int, data: bytes, flags: list[bytes]) -> bytes:
    """Return a message of the RFCs as it was written before them, with these flags: undo `renumber()`."""
    rest = iter(flags)

    def change(number: int, value: bytes) -> tuple[int, bytes]:
        old = OLD_NUMBERS.get(number, number)
        return old, value[:4] + next(rest) + value[4:] if old == SERVER_INFORMATION else value

    fixed = {NUMBERS[old]: size for old, size in FIXED_IN_PARAMETER.items()}
    fixed[NUMBERS[SERVER_INFORMATION]] -= 4
    return _message(ppid, data, fixed, change)


def _message(ppid: int, data: bytes, fixed: Mapping[int, int], change: Change) -> bytes:
    body = _parameters(data[4:], FIXED_IN_MESSAGE[ppid].get(data[0], 0), fixed, change)
    return data[:2] + struct.pack(">H", len(body) + 4) + body


def _parameters(data: bytes, start: int, fixed: Mapping[int, int], change: Change) -> bytes:
    parts, position = [data[:start]], start
    while position < len(data):
        number, length = struct.unpack_from(">HH", data, position)
        value = data[position + 4 : position + length]
        if number in fixed:
            value = _parameters(value, fixed[number], fixed, change)
        number, value = change(number, value)
        parts.append(struct.pack(">HH", number, len(value) + 4) + value + bytes(-len(value) % 4))
        position += length + -length % 4
    return b"".join(parts)


@dataclass(frozen=True)
class Captured:
    """One user message: the number of the frame that completed it, its payload protocol and its bytes."""

    frame: int
    ppid: int
    data: bytes


@dataclass
class Report:
    """The contents of a capture: messages by class name, and the messages our codec does not agree with."""

    seen: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def check(path: Path, before_rfc: bool = False) -> Report:
    """Decode every ASAP and ENRP message of a capture, encode it again and compare the bytes."""
    report = Report()
    for captured in messages(path):
        codec = CODECS[captured.ppid]
        data, flags = renumber(captured.ppid, captured.data) if before_rfc else (captured.data, [])
        try:
            message = codec.decode(data)
        except DecodeError as problem:
            report.problems.append(f"frame {captured.frame}: {problem}: {data.hex()}")
            continue
        report.seen[type(message).__name__] += 1
        again = codec.encode(message)
        if before_rfc:
            again = number_back(captured.ppid, again, flags)
        if again != captured.data:
            was = captured.data.hex()
            report.problems.append(f"frame {captured.frame}: {was} became {again.hex()}: {message}")
    return report


def messages(path: Path) -> Iterator[Captured]:
    """Yield every ASAP and ENRP message of a capture, each once however often it was retransmitted."""
    associations: dict[tuple[bytes, int], dict[int, tuple[int, bytes]]] = {}
    for frame, packet in packets(path):
        protocol, segment = _open_ip(packet)
        if protocol == UDP and len(segment) >= 8:
            (port,) = struct.unpack_from(">H", segment, 2)
            ppid = {asap.PORT: asap.PPID, enrp.PORT: enrp.PPID}.get(port)
            if ppid:
                yield Captured(frame, ppid, segment[8:])
        elif protocol == SCTP and len(segment) >= 12:
            for stream, tsn, flags, ppid, data in _data_chunks(segment):
                if ppid in CODECS:
                    # The two ports and the verification tag name one direction of an association.
                    fragments = associations.setdefault((segment[:8], stream), {})
                    if tsn not in fragments:
                        fragments[tsn] = flags, data
                        if (whole := _reassemble(fragments, tsn)) is not None:
                            yield Captured(frame, ppid, whole)


def packets(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number (from 1) and IP packet of each frame."""
    capture = path.read_bytes()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}.get(capture[:4])
    if order is None:
        raise ValueError(f"{path}: no pcap file (try: editcap -F pcap)")
    (link,) = struct.unpack_from(order + "I", capture, 20)
    if link not in LINK_HEADER:
        raise ValueError(f"{path}: link type {link} is not supported")
    position, number = 24, 0
    while position + 16 <= len(capture):
        (length,) = struct.unpack_from(order + "I", capture, position + 8)
        if position + 16 + length > len(capture):
            break  # still being written
        number += 1
        yield number, capture[position + 16 + LINK_HEADER[link] : position + 16 + length]
        position += 16 + length


def _open_ip(packet: bytes) -> tuple[int, bytes]:
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20:
        total, fragment = struct.unpack_from(">HxxH", packet, 2)
        if fragment & 0x3FFF:
            raise ValueError("fragmented IP packets are not supported")
        return packet[9], packet[(packet[0] & 15) * 4 : total]
    if version == 6 and len(packet) >= 40:
        (length,) = struct.unpack_from(">H", packet, 4)
        return packet[6], packet[40 : 40 + length]
    return 0, b""


def _data_chunks(segment: bytes) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Yield stream, TSN, flags, payload protocol and bytes of each DATA chunk."""
    position = 12
    while position + 4 <= len(segment):
        kind, flags, length = struct.unpack_from(">BBH", segment, position)
        if kind == 0 and length > 16:
            tsn, stream, _sequence, ppid = struct.unpack_from(">IHHI", segment, position + 4)
            yield stream, tsn, flags, ppid, segment[position + 16 : position + length]
        position += max(length + -length % 4, 4)


def _reassemble(fragments: dict[int, tuple[int, bytes]], tsn: int) -> bytes | None:
    """Return the user message that TSN belongs to, None while a part of it is missing."""
    first = last = tsn
    while not fragments[first][0] & FIRST:
        first = (first - 1) & 0xFFFFFFFF
        if first not in fragments:
            return None
    while not fragments[last][0] & LAST:
        last = (last + 1) & 0xFFFFFFFF
        if last not in fragments:
            return None
    count = ((last - first) & 0xFFFFFFFF) + 1
    return b"".join(fragments[(first + offset) & 0xFFFFFFFF][1] for offset in range(count))


def main() -> None:
    for name in sys.argv[1:]:
        report = check(Path(name))
        print(name)
        for kind, count in sorted(report.seen.items()):
            print(f"  {count:6} {kind}")
        for problem in report.problems:
            print(f"  {problem[:300]}")
        print(f"  {report.seen.total()} decoded, {len(report.problems)} problems")


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


if __name__ == "__main__":
    main()
