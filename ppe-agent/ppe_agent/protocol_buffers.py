"""Protocol buffers, as far as the messages of a health check and of a load report need them."""

import struct
from collections.abc import Iterator
from typing import Final

_VARINT_BYTES: Final = 10
_FIXED64, _LENGTH, _FIXED32 = 1, 2, 5
_DOUBLE: Final = struct.Struct("<d")


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protocol buffer: an integer, or bytes of any other type.

    Raises ValueError when it is none.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _LENGTH:
            length, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"a field of the unknown type {kind}")
        if number == 0 or length > len(message) - at:
            raise ValueError("a field ends after its message")
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for position, byte in enumerate(message[at : at + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, at + position + 1
    raise ValueError("a number without an end")


def field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protocol buffer: `value` from 0 on as a varint, or bytes with their length."""
    if isinstance(value, int):
        return _write_varint(number << 3) + _write_varint(value)
    return _write_varint(number << 3 | _LENGTH) + _write_varint(len(value)) + value


def _write_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def double(value: int | bytes) -> float:
    """Return the value of a field of type double. Raises ValueError when it has another type."""
    if isinstance(value, int) or len(value) != _DOUBLE.size:
        raise ValueError("a field is no double")
    return float(_DOUBLE.unpack(value)[0])
