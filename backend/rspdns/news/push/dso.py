"""Messages of DNS Stateful Operations (RFC 8490) and DNS Push Notifications (RFC 8765), on the wire. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from io import BytesIO
from typing import Final, NamedTuple

import dns.exception
import dns.name
import dns.rdataclass

from rspdns import names
from rspdns.news.message import MalformedError

OPCODE: Final = 6
HEADER: Final = struct.Struct("!6H")
_PAIR: Final = struct.Struct("!2H")
_RECORD: Final = struct.Struct("!HHIH")
RESPONSE: Final = 0x8000
"""The bit QR of the header."""
REMOVED, ALL_REMOVED = 0xFFFF_FFFF, 0xFFFF_FFFE
"""The TTLs of a change that removes one record, and of one that removes an RRset or a name."""
MOST_PUSH_BYTES = 16_382
PADDED_TO_BYTES = 468
"""Padded messages have a multiple of this length (RFC 8467 section 4.1)."""
_MOST_CONTENT = MOST_PUSH_BYTES // PADDED_TO_BYTES * PADDED_TO_BYTES - _PAIR.size
_MOST_DATA = _MOST_CONTENT - HEADER.size - _PAIR.size - 255 - _RECORD.size


class DsoType(IntEnum):
    """The kinds of TLVs."""

    KEEPALIVE = 0x01
    RETRY_DELAY = 0x02
    ENCRYPTION_PADDING = 0x03
    SUBSCRIBE = 0x40
    PUSH = 0x41
    UNSUBSCRIBE = 0x42
    RECONFIRM = 0x43


class Tlv(NamedTuple):
    """A TLV; `type` need not be known."""

    type: int
    data: bytes


class PushQuestion(NamedTuple):
    """The name, type and class that a SUBSCRIBE is about; the name as `rspdns.names` has it."""

    name: str
    type: int
    rdclass: int


class RecordChange(NamedTuple):
    """A record that came, or with a TTL of `REMOVED` or `ALL_REMOVED` one that left, or several."""

    name: str
    type: int
    ttl: int
    data: bytes = b""


def message(identifier: int, tlvs: Iterable[Tlv], flags: int = 0, *, is_padded: bool = False) -> bytes:
    """Return the message with the length before it, as TCP carries it. `flags` are `RESPONSE` and RCODE."""
    body = HEADER.pack(identifier, flags | OPCODE << 11, 0, 0, 0, 0)
    body += b"".join(_PAIR.pack(tlv.type, len(tlv.data)) + tlv.data for tlv in tlvs)
    if is_padded:
        missing = -(len(body) + _PAIR.size) % PADDED_TO_BYTES
        body += _PAIR.pack(DsoType.ENCRYPTION_PADDING, missing) + bytes(missing)
    return struct.pack("!H", len(body)) + body


def read_tlvs(data: bytes) -> list[Tlv]:
    """Read what follows the header. Raises MalformedError, also if there is no TLV."""
    tlvs, at = list[Tlv](), 0
    while at < len(data) or not tlvs:
        start = at + _PAIR.size
        if start > len(data):
            raise MalformedError("a TLV is cut off")
        number, length = _PAIR.unpack_from(data, at)
        at = start + length
        if at > len(data):
            raise MalformedError("the data of a TLV is cut off")
        tlvs.append(Tlv(number, data[start:at]))
    return tlvs


def read_question(data: bytes) -> PushQuestion:
    """Read the data of a SUBSCRIBE. Raises MalformedError."""
    try:
        name, length = dns.name.from_wire(data, 0)
    except dns.exception.DNSException as problem:
        raise MalformedError(f"no name: {problem}") from None
    if len(data) != length + _PAIR.size:
        raise MalformedError("a SUBSCRIBE holds one name, type and class")
    return PushQuestion(names.to_text(name), *_PAIR.unpack_from(data, length))


@lru_cache(maxsize=64)
def push_messages(changes: tuple[RecordChange, ...], *, is_padded: bool) -> bytes:
    """Return the PUSH messages with these changes, framed: as few as there can be, and no longer than
    allowed. Many sessions are told the same. A record that no message can hold is left out."""
    parts: list[bytes] = []
    file, offsets = BytesIO(), dict[dns.name.Name, int]()

    def begin() -> None:
        file.seek(HEADER.size + _PAIR.size)
        file.truncate()
        offsets.clear()

    def finish(end: int) -> None:
        data = file.getvalue()[HEADER.size + _PAIR.size : end]
        if data:
            parts.append(message(0, (Tlv(DsoType.PUSH, data),), is_padded=is_padded))

    begin()
    for change in changes:
        if len(change.data) > _MOST_DATA:
            continue
        start = file.tell()
        _write(file, offsets, change)
        if file.tell() > _MOST_CONTENT:
            finish(start)
            begin()
            _write(file, offsets, change)
    finish(file.tell())
    return b"".join(parts)


def _write(file: BytesIO, offsets: dict[dns.name.Name, int], change: RecordChange) -> None:
    """Write a change where it will stand in its message, its name compressed. The target of an SRV record is
    not, though RFC 8765 would have it so: readers may refuse it (RFC 2782), as dnspython does."""
    dns.name.from_text(change.name, dns.name.root).to_wire(file, offsets)
    file.write(_RECORD.pack(change.type, dns.rdataclass.IN, change.ttl, len(change.data)))
    file.write(change.data)
