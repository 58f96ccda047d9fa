"""The frames that ASAP and ENRP share: messages, and type-length-value parameters (RFC 5354, section 2).

Time and memory are linear in the bytes given, at most 64 KiB: parameters nest only where the protocol nests
them (message > pool element > transport > address), never by what the bytes ask for. Parameters may come in
any order. A parameter that is not known where it stands is kept in `unknown` and encoded again, last, or
makes the message undecodable, as the two high bits of its type say (RFC 5354, section 2); `DecodeError.cause`
is then what to report to the sender, if anything. Reserved bits and padding are ignored.

A new message is a frozen dataclass with `TYPE`, `_to_wire` and `_from_wire` in `asap` or `enrp`, and its name
in the union there. A new policy is a dataclass in `policies`, and its name in the union. A new parameter is a
number in `ParameterType`, with its reader and writer in `parameters`. The tests fail until they know it too.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Protocol, Self, TypeVar

from rserpool.errors import CauseCode, DecodeError, EncodeError, ErrorCause

_MESSAGE = struct.Struct(">BBH")
_PARAMETER = struct.Struct(">HH")
_UINT32 = struct.Struct(">I")

MAX_LENGTH = 0xFFFF
"""Bytes of the longest message or parameter: its length field has 16 bits."""
MAX_REPORTED = 1024
"""Bytes of an unknown message that an error report repeats at most."""


class ParameterType(IntEnum):
    """Parameter types (RFC 5354, section 3; ITEM_COUNT: draft-dreibholz-rserpool-asap-hropt)."""

    IPV4_ADDRESS = 0x0001
    IPV6_ADDRESS = 0x0002
    DCCP_TRANSPORT = 0x0003
    SCTP_TRANSPORT = 0x0004
    TCP_TRANSPORT = 0x0005
    UDP_TRANSPORT = 0x0006
    UDP_LITE_TRANSPORT = 0x0007
    POLICY = 0x0008
    POOL_HANDLE = 0x0009
    POOL_ELEMENT = 0x000A
    SERVER_INFORMATION = 0x000B
    OPERATION_ERROR = 0x000C
    COOKIE = 0x000D
    PE_IDENTIFIER = 0x000E
    PE_CHECKSUM = 0x000F
    ITEM_COUNT = 0x803F


@dataclass(frozen=True, slots=True)
class UnknownParameter:
    """A parameter that is not known where it stands; the high bit of its type lets it be skipped."""

    type: int
    data: bytes = b""

    @property
    def report(self) -> bool:
        """True when the sender wants to hear that it was not understood."""
        return bool(self.type & 0x4000)


class WireMessage(Protocol):
    """The interface of a message class for `encode` and `decode`."""

    TYPE: ClassVar[int]

    @property
    def unknown(self) -> tuple[UnknownParameter, ...]:
        """Parameters kept from decoding; encoded last."""

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        """Return the flags, and the body without the unknown parameters."""

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        """Read a body; raise DecodeError when it is not one of this message."""


M = TypeVar("M", bound=WireMessage)


def encode(message: WireMessage) -> bytes:
    """Return header and body of a message. Raises EncodeError above 65535 bytes."""
    flags, parts = message._to_wire()
    body = b"".join(parts) + unknown_parameters(message.unknown)
    length = _MESSAGE.size + len(body)
    if length > MAX_LENGTH:
        raise EncodeError(f"{type(message).__name__} of {length} bytes: at most {MAX_LENGTH} fit")
    return _MESSAGE.pack(message.TYPE, flags, length) + body


def decode(data: bytes, messages: Mapping[int, type[M]]) -> M:
    """Read a message, which must fill `data` but for padding; `messages`: the class of each type number."""
    if len(data) < _MESSAGE.size:
        raise DecodeError(f"message cut off: {len(data)} bytes")
    number, flags, length = _MESSAGE.unpack_from(data)
    if not _MESSAGE.size <= length <= len(data):
        raise DecodeError(f"message 0x{number:02x} says {length} bytes, {len(data)} are there")
    if len(data) - length > 3:
        raise DecodeError(f"message 0x{number:02x} is followed by {len(data) - length} more bytes")
    known = messages.get(number)
    if known is None:
        cause = ErrorCause(CauseCode.UNRECOGNIZED_MESSAGE, data[:MAX_REPORTED])
        raise DecodeError(f"unknown message type 0x{number:02x}", cause)
    return known._from_wire(flags, data[_MESSAGE.size : length])


def parameter(parameter_type: int, *values: bytes) -> bytes:
    """Return a parameter, padded to a multiple of four bytes; its length field leaves the padding out."""
    value = b"".join(values)
    length = _PARAMETER.size + len(value)
    if length > MAX_LENGTH:
        raise EncodeError(f"parameter 0x{parameter_type:04x} of {length} bytes: at most {MAX_LENGTH} fit")
    return _PARAMETER.pack(parameter_type, length) + value + bytes(-length % 4)


def unknown_parameters(unknown: Iterable[UnknownParameter]) -> bytes:
    """Return the bytes of parameters kept from decoding."""
    return b"".join(parameter(kept.type, kept.data) for kept in unknown)


def split_parameters(data: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield type and value of each parameter of `data` from `start` on."""
    position, end = start, len(data)
    while position < end:
        if end - position < _PARAMETER.size:
            raise DecodeError(f"parameter cut off: {end - position} bytes at offset {position}")
        parameter_type, length = _PARAMETER.unpack_from(data, position)
        if not _PARAMETER.size <= length <= end - position:
            raise DecodeError(
                f"parameter 0x{parameter_type:04x} says {length} bytes, {end - position} are there",
                ErrorCause(CauseCode.INVALID_VALUES),
            )
        yield parameter_type, data[position + _PARAMETER.size : position + length]
        position += length + -length % 4


class Parameters:
    """The parameters of a message or of a parameter that holds parameters.

    Those not `expected` are treated as the high bits of their type say (RFC 5354, section 2): 00 and 01 make
    the whole message undecodable (01: to be reported), 10 and 11 are kept in `unknown`.
    """

    def __init__(self, data: bytes, expected: frozenset[int], start: int = 0) -> None:
        self._parameters: list[tuple[int, bytes]] = []
        unknown = []
        for parameter_type, value in split_parameters(data, start):
            if parameter_type in expected:
                self._parameters.append((parameter_type, value))
            elif parameter_type & 0x8000:
                unknown.append(UnknownParameter(parameter_type, value))
            else:
                report = parameter_type & 0x4000
                whole = parameter(parameter_type, value)
                raise DecodeError(
                    f"unexpected parameter 0x{parameter_type:04x}",
                    ErrorCause(CauseCode.UNRECOGNIZED_PARAMETER, whole) if report else None,
                )
        self.unknown = tuple(unknown)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return iter(self._parameters)

    def all(self, wanted: int) -> list[bytes]:
        """Return the values of every parameter of one type."""
        return [value for parameter_type, value in self._parameters if parameter_type == wanted]

    def optional(self, wanted: int) -> bytes | None:
        """Return the value of a parameter that may be there once, None when it is not."""
        values = self.all(wanted)
        if len(values) > 1:
            raise DecodeError(f"{ParameterType(wanted).name} is there {len(values)} times")
        return values[0] if values else None

    def required(self, wanted: int) -> bytes:
        """Return the value of a parameter that must be there once."""
        value = self.optional(wanted)
        if value is None:
            raise DecodeError(
                f"{ParameterType(wanted).name} is missing", ErrorCause(CauseCode.INVALID_VALUES)
            )
        return value


def uint32(value: int) -> bytes:
    """Return four bytes, network order."""
    try:
        return _UINT32.pack(value)
    except struct.error:
        raise EncodeError(f"{value} does not fit an unsigned 32-bit field") from None


def read_uint32(value: bytes) -> int:
    """Read a value that must be exactly four bytes."""
    if len(value) != _UINT32.size:
        raise DecodeError(f"expected 4 bytes, found {len(value)}")
    (number,) = _UINT32.unpack(value)
    return int(number)


def fixed(data: bytes, layout: struct.Struct) -> tuple[int, ...]:
    """Read the fixed fields a body or value starts with."""
    if len(data) < layout.size:
        raise DecodeError(f"expected {layout.size} bytes of fixed fields, found {len(data)}")
    return layout.unpack_from(data)
