"""A client of DNS Push Notifications for tests, written from the figures of RFC 8490 and RFC 8765, with
dnspython's reader for names and data. It knows nothing of `rspdns.news.push`.

    python -m tests.backend.push_client ADDRESS PORT CA NAME:TYPE...     prints each message as a line of JSON
"""

import json
import socket
import ssl
import struct
import sys
import time
from typing import Any, NamedTuple

import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.wire

KEEPALIVE, RETRY_DELAY, PADDING = 1, 2, 3
SUBSCRIBE, PUSH, UNSUBSCRIBE, RECONFIRM = 0x40, 0x41, 0x42, 0x43
ONE_REMOVED, SET_REMOVED = 0xFFFFFFFF, 0xFFFFFFFE


def dso(identifier: int, *tlvs: tuple[int, bytes], flags: int = 0x3000, counts: int = 0) -> bytes:
    """A message with its length: MESSAGE ID, QR, OPCODE 6, Z and RCODE, four counts, TLVs."""
    body = struct.pack(">HHHHHH", identifier, flags, counts, 0, 0, 0)
    for number, data in tlvs:
        body += struct.pack(">HH", number, len(data)) + data
    return struct.pack(">H", len(body)) + body


def keepalive(identifier: int, inactivity_ms: int = 15_000, keepalive_ms: int = 60_000) -> bytes:
    return dso(identifier, (KEEPALIVE, struct.pack(">II", inactivity_ms, keepalive_ms)))


def wire(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def subscribe(identifier: int, name: str, kind: str, rdclass: int = 1, *more: tuple[int, bytes]) -> bytes:
    number = dns.rdatatype.from_text(kind)
    return dso(identifier, (SUBSCRIBE, wire(name) + struct.pack(">HH", number, rdclass)), *more)


def unsubscribe(identifier: int) -> bytes:
    return dso(0, (UNSUBSCRIBE, struct.pack(">H", identifier)))


class ServerMessage(NamedTuple):
    """A message of the server."""

    identifier: int
    is_response: bool
    rcode: int
    tlvs: list[tuple[int, bytes]]
    changes: list[tuple[str, str, int, str]]
    """The name, type, TTL and data, as text, of each change in a PUSH."""
    size: int

    def value(self, number: int) -> tuple[int, ...]:
        """The numbers of 32 bits in the TLV of this type."""
        (data,) = [data for kind, data in self.tlvs if kind == number]
        return struct.unpack(f">{len(data) // 4}I", data)


def messages_of(data: bytes) -> list[ServerMessage]:
    """Read whole messages."""
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">H", data, at)
        found.append(_message_of(data[at + 2 : at + 2 + length]))
        at += 2 + length
    assert at == len(data)
    return found


def _message_of(body: bytes) -> ServerMessage:
    identifier, flags, *counts = struct.unpack_from(">HHHHHH", body)
    assert (flags >> 11 & 15, flags & 0x07F0) == (6, 0), "OPCODE and Z"
    assert counts == [0, 0, 0, 0]
    tlvs, changes, at = [], list[tuple[str, str, int, str]](), 12
    while at < len(body):
        number, length = struct.unpack_from(">HH", body, at)
        tlvs.append((number, body[at + 4 : at + 4 + length]))
        assert at + 4 + length <= len(body)
        if number == PUSH:
            changes = list(_changes(body, at + 4, at + 4 + length))
        at += 4 + length
    return ServerMessage(identifier, bool(flags & 0x8000), flags & 15, tlvs, changes, len(body))


def _changes(body: bytes, start: int, end: int) -> Any:
    parser = dns.wire.Parser(body[:end], start)
    assert parser.remaining(), "a PUSH tells at least one change"
    while parser.remaining():
        name = dns.name.from_wire_parser(parser)
        number, rdclass, ttl, length = parser.get_struct(">HHIH")
        assert rdclass == dns.rdataclass.IN
        text = ""
        if ttl == SET_REMOVED:
            assert length == 0
        else:
            assert number != dns.rdatatype.ANY
            with parser.restrict_to(length):
                text = dns.rdata.from_wire_parser(rdclass, number, parser).to_text()
        yield name.to_text(omit_final_dot=True), dns.rdatatype.to_text(number), ttl, text


def main(address: str, port: str, authority: str, *questions: str) -> None:
    """Subscribe, and print what comes, with the time, until the server ends."""
    tls = ssl.create_default_context(cafile=authority)
    tls.check_hostname = False
    wanted = [question.split(":") for question in questions]
    with tls.wrap_socket(socket.create_connection((address, int(port)), 20)) as connection:
        asked = [subscribe(number, name, kind) for number, (name, kind) in enumerate(wanted, 2)]
        connection.sendall(keepalive(1, 0, 3_600_000) + b"".join(asked))
        connection.settimeout(None)
        with connection.makefile("rb") as stream:
            while len(length := stream.read(2)) == 2:
                (message,) = messages_of(length + stream.read(int.from_bytes(length)))
                told = {"at_s": time.monotonic(), "rcode": message.rcode, "changes": message.changes}
                kinds = [kind for kind, _ in message.tlvs]
                print(json.dumps({**told, "identifier": message.identifier, "tlvs": kinds}), flush=True)
                if message.identifier == 0 and kinds == [RETRY_DELAY]:
                    return


if __name__ == "__main__":
    main(*sys.argv[1:])
