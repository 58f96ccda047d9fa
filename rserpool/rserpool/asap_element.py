"""ASAP between a pool element and its registrar (RFC 5352, section 2.2).

Every field `handle` is a pool handle; `identifier` is that of a pool element (0..0xffffffff); `error` says
why something was refused, and is empty when nothing was.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from rserpool import wire
from rserpool.errors import Cause
from rserpool.parameters import (
    PoolElement,
    UnknownParameter,
    decode_pool_element,
    encode_error,
    encode_handle,
    encode_identifier,
    encode_pool_element,
    read_error,
)
from rserpool.wire import Parameters, uint32
from rserpool.wire import ParameterType as P


@dataclass(frozen=True, slots=True)
class Registration:
    """A pool element joins a pool, or renews its registration (section 2.2.1)."""

    TYPE: ClassVar[int] = 0x01
    handle: bytes
    pool_element: PoolElement
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (encode_handle(self.handle), encode_pool_element(self.pool_element))

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        found = Parameters(body, frozenset({P.POOL_HANDLE, P.POOL_ELEMENT}))
        return cls(found.one(P.POOL_HANDLE), decode_pool_element(found.one(P.POOL_ELEMENT)), found.unknown)


@dataclass(frozen=True, slots=True)
class AboutElement:
    """What most messages hold: a pool handle and a PE identifier."""

    TYPE: ClassVar[int]
    handle: bytes
    identifier: int
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (encode_handle(self.handle), encode_identifier(self.identifier))

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        found = Parameters(body, frozenset({P.POOL_HANDLE, P.PE_IDENTIFIER}))
        return cls(found.one(P.POOL_HANDLE), wire.read_uint32(found.one(P.PE_IDENTIFIER)), found.unknown)


class Deregistration(AboutElement):
    """A pool element leaves its pool (section 2.2.2)."""

    __slots__ = ()
    TYPE = 0x02


_RESPONSE = frozenset({P.POOL_HANDLE, P.PE_IDENTIFIER, P.OPERATION_ERROR})
_REJECT = 0x01


@dataclass(frozen=True, slots=True)
class RegistrationResponse:
    """The registrar's answer to Registration (section 2.2.3)."""

    TYPE: ClassVar[int] = 0x03
    handle: bytes
    identifier: int
    rejected: bool = False
    error: tuple[Cause, ...] = ()
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return _REJECT * self.rejected, (
            encode_handle(self.handle),
            encode_identifier(self.identifier),
            encode_error(self.error),
        )

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        found = Parameters(body, _RESPONSE)
        identifier = wire.read_uint32(found.one(P.PE_IDENTIFIER))
        rejected = bool(flags & _REJECT)
        return cls(found.one(P.POOL_HANDLE), identifier, rejected, read_error(found), found.unknown)


@dataclass(frozen=True, slots=True)
class DeregistrationResponse:
    """The registrar's answer to Deregistration (section 2.2.4)."""

    TYPE: ClassVar[int] = 0x04
    handle: bytes
    identifier: int
    error: tuple[Cause, ...] = ()
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (encode_handle(self.handle), encode_identifier(self.identifier), encode_error(self.error))

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        found = Parameters(body, _RESPONSE)
        identifier = wire.read_uint32(found.one(P.PE_IDENTIFIER))
        return cls(found.one(P.POOL_HANDLE), identifier, read_error(found), found.unknown)


@dataclass(frozen=True, slots=True)
class EndpointKeepAlive:
    """The registrar asks a pool element whether it lives (section 2.2.7).

    `home`: the sender is the element's home registrar from now on. `identifier` is rsplib's addition: the
    element that is meant, where one socket serves several.
    """

    TYPE: ClassVar[int] = 0x07
    registrar: int
    handle: bytes
    identifier: int | None = None
    home: bool = False
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        identifier = b"" if self.identifier is None else encode_identifier(self.identifier)
        return int(self.home), (uint32(self.registrar), encode_handle(self.handle), identifier)

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        registrar = wire.read_uint32(body[:4])
        found = Parameters(body, frozenset({P.POOL_HANDLE, P.PE_IDENTIFIER}), start=4)
        value = found.optional(P.PE_IDENTIFIER)
        identifier = None if value is None else wire.read_uint32(value)
        return cls(registrar, found.one(P.POOL_HANDLE), identifier, bool(flags & 0x01), found.unknown)


class EndpointKeepAliveAck(AboutElement):
    """A pool element's answer to EndpointKeepAlive: it lives (section 2.2.8)."""

    __slots__ = ()
    TYPE = 0x08
