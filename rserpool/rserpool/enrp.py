"""ENRP, the protocol among registrars (RFC 5353, section 2): messages, `encode` and `decode`.

`sender`, `receiver` and `target` are registrar identifiers (0..0xffffffff; receiver 0 means everybody).
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Self

from rserpool import wire
from rserpool.errors import DecodeError, ErrorCause, decode_causes
from rserpool.parameters import (
    PoolElement,
    ServerInformation,
    UnknownParameter,
    decode_checksum,
    decode_pool_element,
    decode_server_information,
    encode_checksum,
    encode_error,
    encode_handle,
    encode_pool_element,
    encode_server_information,
)
from rserpool.wire import Parameters, uint32
from rserpool.wire import ParameterType as P

PORT = 9901
"""The registrars' SCTP port for ENRP; also the UDP port of multicast presence."""
PPID = 12
"""SCTP payload protocol identifier."""

_TWO = struct.Struct(">II")
_THREE = struct.Struct(">III")
_UPDATE = struct.Struct(">IIHH")
_FLAG_1, _FLAG_2 = 0x01, 0x02


class UpdateAction(IntEnum):
    """The action of a HandleUpdate with its pool element."""

    ADD = 0
    DELETE = 1


@dataclass(frozen=True, slots=True)
class Presence:
    """A registrar lives; `checksum` (0..65535) covers the pool elements it owns (section 2.1)."""

    TYPE: ClassVar[int] = 0x01
    sender: int
    receiver: int
    checksum: int
    server: ServerInformation | None = None
    reply_required: bool = False
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        server = b"" if self.server is None else encode_server_information(self.server)
        checksum = encode_checksum(self.checksum)
        return _FLAG_1 * self.reply_required, (uint32(self.sender), uint32(self.receiver), checksum, server)

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        sender, receiver = wire.fixed(body, _TWO)
        fields = Parameters(body, frozenset({P.PE_CHECKSUM, P.SERVER_INFORMATION}), _TWO.size)
        checksum = decode_checksum(fields.required(P.PE_CHECKSUM))
        value = fields.optional(P.SERVER_INFORMATION)
        server = None if value is None else decode_server_information(value)
        return cls(sender, receiver, checksum, server, bool(flags & _FLAG_1), fields.unknown)


@dataclass(frozen=True, slots=True)
class HandleTableRequest:
    """Asks for the handlespace, or for the part that the receiver owns (section 2.2)."""

    TYPE: ClassVar[int] = 0x02
    sender: int
    receiver: int
    own_children_only: bool = False
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return _FLAG_1 * self.own_children_only, (uint32(self.sender), uint32(self.receiver))

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        sender, receiver = wire.fixed(body, _TWO)
        fields = Parameters(body, frozenset(), _TWO.size)
        return cls(sender, receiver, bool(flags & _FLAG_1), fields.unknown)


@dataclass(frozen=True, slots=True)
class PoolEntry:
    """A pool in a handle table: its handle and its elements."""

    handle: bytes
    pool_elements: tuple[PoolElement, ...]


@dataclass(frozen=True, slots=True)
class HandleTableResponse:
    """The handlespace, or a part of it: `more_to_send` says that asking again brings more (section 2.3)."""

    TYPE: ClassVar[int] = 0x03
    sender: int
    receiver: int
    pools: tuple[PoolEntry, ...] = ()
    rejected: bool = False
    more_to_send: bool = False
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        parts = [uint32(self.sender), uint32(self.receiver)]
        for pool in self.pools:
            parts.append(encode_handle(pool.handle))
            parts.extend(encode_pool_element(element) for element in pool.pool_elements)
        return _FLAG_1 * self.rejected | _FLAG_2 * self.more_to_send, tuple(parts)

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        sender, receiver = wire.fixed(body, _TWO)
        fields = Parameters(body, frozenset({P.POOL_HANDLE, P.POOL_ELEMENT}), _TWO.size)
        pools: list[tuple[bytes, list[PoolElement]]] = []
        for parameter_type, value in fields:
            if parameter_type == P.POOL_HANDLE:
                pools.append((value, []))
            elif pools:
                pools[-1][1].append(decode_pool_element(value))
            else:
                raise DecodeError("a handle table starts with a pool element instead of a pool handle")
        entries = tuple(PoolEntry(handle, tuple(elements)) for handle, elements in pools)
        rejected, more_to_send = bool(flags & _FLAG_1), bool(flags & _FLAG_2)
        return cls(sender, receiver, entries, rejected, more_to_send, fields.unknown)


@dataclass(frozen=True, slots=True)
class HandleUpdate:
    """A pool element came, changed or went (section 2.4).

    `takeover_suggested`: the receiver may take the element over (draft-dreibholz-rserpool-enrp-takeover).
    """

    TYPE: ClassVar[int] = 0x04
    sender: int
    receiver: int
    action: UpdateAction
    handle: bytes
    pool_element: PoolElement
    takeover_suggested: bool = False
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        fixed = uint32(self.sender) + uint32(self.receiver) + struct.pack(">HH", self.action, 0)
        flags = _FLAG_1 * self.takeover_suggested
        return flags, (fixed, encode_handle(self.handle), encode_pool_element(self.pool_element))

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        sender, receiver, number, _reserved = wire.fixed(body, _UPDATE)
        try:
            action = UpdateAction(number)
        except ValueError:
            raise DecodeError(f"unknown update action {number}") from None
        fields = Parameters(body, frozenset({P.POOL_HANDLE, P.POOL_ELEMENT}), _UPDATE.size)
        handle = fields.required(P.POOL_HANDLE)
        element = decode_pool_element(fields.required(P.POOL_ELEMENT))
        return cls(sender, receiver, action, handle, element, bool(flags & _FLAG_1), fields.unknown)


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Asks for the registrars the receiver knows (section 2.5)."""

    TYPE: ClassVar[int] = 0x05
    sender: int
    receiver: int
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (uint32(self.sender), uint32(self.receiver))

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        sender, receiver = wire.fixed(body, _TWO)
        return cls(sender, receiver, Parameters(body, frozenset(), _TWO.size).unknown)


@dataclass(frozen=True, slots=True)
class ListResponse:
    """The registrars the sender knows (section 2.6)."""

    TYPE: ClassVar[int] = 0x06
    sender: int
    receiver: int
    servers: tuple[ServerInformation, ...] = ()
    rejected: bool = False
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        servers = map(encode_server_information, self.servers)
        return _FLAG_1 * self.rejected, (uint32(self.sender), uint32(self.receiver), *servers)

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        sender, receiver = wire.fixed(body, _TWO)
        fields = Parameters(body, frozenset({P.SERVER_INFORMATION}), _TWO.size)
        servers = tuple(decode_server_information(value) for value in fields.all(P.SERVER_INFORMATION))
        return cls(sender, receiver, servers, bool(flags & _FLAG_1), fields.unknown)


@dataclass(frozen=True, slots=True)
class AboutTarget:
    """The fields of the takeover messages: `target` is the registrar whose pool elements are taken over."""

    TYPE: ClassVar[int]
    sender: int
    receiver: int
    target: int
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (uint32(self.sender), uint32(self.receiver), uint32(self.target))

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        sender, receiver, target = wire.fixed(body, _THREE)
        return cls(sender, receiver, target, Parameters(body, frozenset(), _THREE.size).unknown)


class InitTakeover(AboutTarget):
    """The sender is about to take over from `target`, which it thinks dead (section 2.7)."""

    __slots__ = ()
    TYPE = 0x07


class InitTakeoverAck(AboutTarget):
    """The sender agrees that the receiver takes over `target` (section 2.8)."""

    __slots__ = ()
    TYPE = 0x08


class TakeoverServer(AboutTarget):
    """The sender has taken over `target`'s pool elements (section 2.9)."""

    __slots__ = ()
    TYPE = 0x09


@dataclass(frozen=True, slots=True)
class EnrpError:
    """A message of the receiver could not be understood or done (section 2.10)."""

    TYPE: ClassVar[int] = 0x0A
    sender: int
    receiver: int
    error: tuple[ErrorCause, ...]
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (uint32(self.sender), uint32(self.receiver), encode_error(self.error))

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        sender, receiver = wire.fixed(body, _TWO)
        fields = Parameters(body, frozenset({P.OPERATION_ERROR}), _TWO.size)
        return cls(sender, receiver, decode_causes(fields.required(P.OPERATION_ERROR)), fields.unknown)


EnrpMessage = (
    Presence
    | HandleTableRequest
    | HandleTableResponse
    | HandleUpdate
    | ListRequest
    | ListResponse
    | InitTakeover
    | InitTakeoverAck
    | TakeoverServer
    | EnrpError
)

MESSAGES: dict[int, type[EnrpMessage]] = {message.TYPE: message for message in EnrpMessage.__args__}
"""Every message by its type number."""


def encode(message: EnrpMessage) -> bytes:
    """Return the bytes of one message; raise EncodeError when a value does not fit its field."""
    return wire.encode(message)


def decode(data: bytes) -> EnrpMessage:
    """Read one message, which is one SCTP user message; raise DecodeError (nothing else) when it is none."""
    return wire.decode(data, MESSAGES)
