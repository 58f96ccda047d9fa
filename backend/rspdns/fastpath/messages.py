"""The messages of rspdns-fastpath's socket, as bytes. Pure.

    size (4 bytes, of what follows), kind (1 byte), body

In the machine's own byte order: both ends are on one host. fastpath/daemon/messages.h says what each holds.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from rspdns.fastpath.configuration import LimitConfig
from rspdns.fastpath.ready import TYPES, Answer, Question
from rspdns.rrset import wire_name
from rspdns.zones.asker_classes import AskerBlock
from rspdns.zones.near import BITS

VERSION = 6
MOST_BYTES = 64 << 20
"""The most bytes of a message, and of a status with all its parts."""
_HEAD = struct.Struct("=IB")
_HELLO = struct.Struct("=IH?")
_COMMITTED = struct.Struct("=QI")
_QUESTION = struct.Struct("=HHHB")
_ANSWER = struct.Struct("=HHH")
_NUMBER = struct.Struct("=H")
_BLOCK = struct.Struct("=HBB16s")
LEASES = 16
BLOCKS_A_MESSAGE = 500


class MessageError(ValueError):
    """A message that rspdns-fastpath doesn't send."""


class DaemonMessage(NamedTuple):
    """One message; `kind` is a letter."""

    kind: str
    body: bytes


def _message(kind: str, body: bytes = b"") -> bytes:
    return _HEAD.pack(1 + len(body), ord(kind)) + body


def hello(udp_payload: int, *, client_subnet: bool = False) -> bytes:
    """The greeting: all answers of before are forgotten."""
    return _message("H", _HELLO.pack(VERSION, udp_payload, client_subnet))


def put(question: Question, variants: Sequence[Answer], classes_number: int = 0) -> bytes:
    """These answers to a question from the next commit on; none: PowerDNS answers it. With `classes_number`,
    they are for askers whose class has no answers of its own among the classes of this number."""
    name = wire_name(question.name)
    head = _QUESTION.pack(TYPES[question.type], question.asker_class, classes_number, len(name))
    parts = [head, name, bytes([len(variants)])]
    for answer in variants:
        parts += (_ANSWER.pack(answer.answers, answer.additional, len(answer.records)), answer.records)
    return _message("P", b"".join(parts))


def classes(number: int, blocks: Sequence[AskerBlock]) -> bytes:
    """The classes of the askers in these blocks, of the classes of this number."""
    parts = [_NUMBER.pack(number)]
    for version, address, length, asker_class in blocks:
        packed = address.to_bytes(BITS[version] // 8, "big")
        parts.append(_BLOCK.pack(asker_class, version, length, packed))
    return _message("N", b"".join(parts))


def forget_classes(number: int) -> bytes:
    """The classes of this number are those of no answer any more."""
    return _message("F", _NUMBER.pack(number))


def limit(wanted: LimitConfig) -> bytes:
    """Limit the questions of each source prefix from now on."""
    rates = (wanted.deep_per_s, wanted.all_per_s)
    return _message(
        "L", struct.pack("=IIBBH", *rates, wanted.ipv4_prefix_bits, wanted.ipv6_prefix_bits, wanted.slip)
    )


def zone_depth(zone: str, labels: int) -> bytes:
    """The labels of a zone's deepest name; 0: the zone is not served any more."""
    name = wire_name(zone)
    return _message("Z", bytes([labels, len(name)]) + name)


def commit(number: int) -> bytes:
    """Make visible what was put; `number` comes back in the reply."""
    return _message("C", struct.pack("=Q", number))


def committed(body: bytes) -> tuple[int, int]:
    """The number of a commit, and how many names found no room. Raises MessageError."""
    try:
        number, refused = _COMMITTED.unpack(body)
    except struct.error:
        raise MessageError("a reply to a change of another size") from None
    return number, refused


def welcomed(body: bytes) -> int:
    """Which lease is the backend's. Raises MessageError."""
    if len(body) != _NUMBER.size:
        raise MessageError("a welcome of another size")
    number: int = _NUMBER.unpack(body)[0]
    if number >= LEASES:
        raise MessageError("a welcome with a lease that there is not")
    return number


_LAST_PART = "s"
_STATUS_PARTS = ("p", _LAST_PART)
STATUS_OF_ASKED = _message("S", b"\0")
STATUS_OF_ALL = _message("S", b"\1")


class Reader:
    """Takes bytes as they come; gives messages. The parts of a status are one, when the last is there."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._status = bytearray()

    def feed(self, data: bytes) -> list[DaemonMessage]:
        """The messages that are whole now. Raises MessageError."""
        self._bytes += data
        whole = []
        while len(self._bytes) >= _HEAD.size:
            size, kind = _HEAD.unpack_from(self._bytes)
            if not 1 <= size <= MOST_BYTES:
                raise MessageError("a message of an impossible size")
            end = _HEAD.size - 1 + size
            if len(self._bytes) < end:
                break
            message = DaemonMessage(chr(kind), bytes(self._bytes[_HEAD.size : end]))
            del self._bytes[:end]
            if message.kind in _STATUS_PARTS:
                self._status += message.body
                if len(self._status) > MOST_BYTES:
                    raise MessageError("a status of an impossible size")
                if message.kind != _LAST_PART:
                    continue
                message = DaemonMessage(_LAST_PART, bytes(self._status))
                self._status.clear()
            whole.append(message)
        return whole
