"""The errors here, and the error causes by which the other side tells why it refused.

All exceptions are `RSerPoolError`s. The causes are those of RFC 5354, section 3.12, and rsplib's own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class RSerPoolError(Exception):
    """Any failure of this package."""


class DecodeError(RSerPoolError):
    """The bytes are no message this package understands. Decoding raises nothing else, whatever the bytes.

    `cause` is what RFC 5354 asks to report to the sender, None where the message is to be dropped silently.
    """

    def __init__(self, problem: str, cause: ErrorCause | None = None) -> None:
        super().__init__(problem)
        self.cause = cause


class EncodeError(RSerPoolError, ValueError):
    """A value does not fit its field on the wire (a port above 65535, a load above 1, 64 KiB in all)."""


class UnsafeMessageError(RSerPoolError, ValueError):
    """The message is well-formed, but rspregistrar would abort on it. It must not be sent."""


class RegistrarUnreachable(RSerPoolError):  # noqa: N818 - reads as a state, and is one
    """There is no association with the registrar."""


class ResolutionTimeout(RSerPoolError):  # noqa: N818 - reads as what happened
    """The registrar did not answer a handle resolution in time."""


class RegistrationRejected(RSerPoolError):  # noqa: N818 - reads as what happened
    """The registrar refused a registration; `causes` says why (may be empty: a registrar need not say)."""

    def __init__(self, causes: Sequence[ErrorCause]) -> None:
        super().__init__("; ".join(cause.explain() for cause in causes) or "the registrar gave no reason")
        self.causes = tuple(causes)


_HEADER = struct.Struct(">HH")


class CauseCode(IntEnum):
    """Cause codes of RFC 5354, section 3.12."""

    UNSPECIFIED = 0
    UNRECOGNIZED_PARAMETER = 1
    UNRECOGNIZED_MESSAGE = 2
    INVALID_VALUES = 3
    NON_UNIQUE_PE_IDENTIFIER = 4
    INCONSISTENT_POLICY = 5
    LACK_OF_RESOURCES = 6
    INCONSISTENT_TRANSPORT = 7
    INCONSISTENT_CONTROL_CHANNEL = 8
    UNKNOWN_POOL_HANDLE = 9
    SECURITY = 10


_WORDS = {
    CauseCode.UNSPECIFIED: "unspecified error",
    CauseCode.UNRECOGNIZED_PARAMETER: "it does not know a parameter we sent",
    CauseCode.UNRECOGNIZED_MESSAGE: "it does not know the message we sent",
    CauseCode.INVALID_VALUES: "a value we sent is invalid",
    CauseCode.NON_UNIQUE_PE_IDENTIFIER: "the PE identifier is taken by another pool element",
    CauseCode.INCONSISTENT_POLICY: "the policy differs from that of the pool",
    CauseCode.LACK_OF_RESOURCES: "it is out of resources",
    CauseCode.INCONSISTENT_TRANSPORT: "the transport protocol differs from that of the pool",
    CauseCode.INCONSISTENT_CONTROL_CHANNEL: "the control-channel flag differs from that of the pool",
    CauseCode.UNKNOWN_POOL_HANDLE: "no such pool (or it has no element)",
    CauseCode.SECURITY: "rejected for security reasons",
    # rsplib's own, from here on
    0x0010: "invalid message",
    0x0011: "invalid value",
    0x1000: "not initialized",
    0x1001: "message too long for its buffer",
    0x1003: "read error",
    0x1004: "write error",
    0x1005: "could not make a socket",
    0x1006: "could not connect",
    0x1007: "no registrar available",
    0x1008: "timeout",
    0x1009: "unknown parameter, to be ignored silently",
    0x100A: "the transport protocol differs from that of the pool",
    0x100B: "it does not know the policy",
    0xF000: "invalid identifier",
    0xF001: "the identifier is its own",
    0xF002: "the identifier is taken",
    0xF003: "invalid pool policy",
    0xF004: "invalid pool handle (above 32 bytes)",
    0xF005: "invalid addresses",
    0xF006: "invalid registrar",
    0xF007: "no usable address for ASAP",
    0xF008: "the addresses do not belong to the SCTP association that registers them",
}


@dataclass(frozen=True, slots=True)
class ErrorCause:
    """One error cause: its code (0..65535) and what the code says belongs to it."""

    code: int
    data: bytes = b""

    def explain(self) -> str:
        """Return words for a person, the code included."""
        words = _WORDS.get(self.code, "unknown cause")
        return f"{words} (cause 0x{self.code:04x}{': ' + self.data.hex() if self.data else ''})"


def encode_causes(causes: tuple[ErrorCause, ...]) -> bytes:
    """Return the value of an Operation Error parameter."""
    parts = []
    for cause in causes:
        length = _HEADER.size + len(cause.data)
        try:
            parts.append(_HEADER.pack(cause.code, length) + cause.data + bytes(-length % 4))
        except struct.error as problem:
            raise EncodeError(f"error cause {cause.code} with {len(cause.data)} bytes: {problem}") from None
    return b"".join(parts)


def decode_causes(value: bytes) -> tuple[ErrorCause, ...]:
    """Read the value of an Operation Error parameter; raise DecodeError unless it holds a cause."""
    causes = []
    position = 0
    while position < len(value):
        if len(value) - position < _HEADER.size:
            raise DecodeError(f"error cause cut off: {len(value) - position} bytes")
        code, length = _HEADER.unpack_from(value, position)
        if not _HEADER.size <= length <= len(value) - position:
            raise DecodeError(
                f"error cause 0x{code:04x} of {length} bytes, {len(value) - position} are there"
            )
        causes.append(ErrorCause(code, value[position + _HEADER.size : position + length]))
        position += length + -length % 4
    if not causes:
        raise DecodeError("operation error without a cause")
    return tuple(causes)
