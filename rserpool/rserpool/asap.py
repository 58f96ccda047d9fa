"""ASAP, the protocol of pool elements and pool users with registrars (RFC 5352): `encode` and `decode`.

Every field `handle` is a pool handle; `identifier` is that of a pool element (0..0xffffffff); `error` says
why something was refused, and is empty when nothing was.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from rserpool import wire
from rserpool.errors import ErrorCause, decode_causes
from rserpool.parameters import (
    TRANSPORT_TYPES,
    PoolElement,
    Transport,
    UnknownParameter,
    decode_pool_element,
    decode_transports,
    encode_error,
    encode_handle,
    encode_identifier,
    encode_policy,
    encode_pool_element,
    encode_transport,
    read_error,
)
from rserpool.policies import Policy, decode_policy
from rserpool.wire import Parameters, ParameterType, parameter, uint32
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
        fields = Parameters(body, frozenset({P.POOL_HANDLE, P.POOL_ELEMENT}))
        return cls(
            fields.required(P.POOL_HANDLE),
            decode_pool_element(fields.required(P.POOL_ELEMENT)),
            fields.unknown,
        )


@dataclass(frozen=True, slots=True)
class AboutElement:
    """The fields of most messages: a pool handle and a PE identifier."""

    TYPE: ClassVar[int]
    handle: bytes
    identifier: int
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (encode_handle(self.handle), encode_identifier(self.identifier))

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        fields = Parameters(body, frozenset({P.POOL_HANDLE, P.PE_IDENTIFIER}))
        return cls(
            fields.required(P.POOL_HANDLE), wire.read_uint32(fields.required(P.PE_IDENTIFIER)), fields.unknown
        )


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
    error: tuple[ErrorCause, ...] = ()
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return _REJECT * self.rejected, (
            encode_handle(self.handle),
            encode_identifier(self.identifier),
            encode_error(self.error),
        )

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        fields = Parameters(body, _RESPONSE)
        identifier = wire.read_uint32(fields.required(P.PE_IDENTIFIER))
        rejected = bool(flags & _REJECT)
        return cls(fields.required(P.POOL_HANDLE), identifier, rejected, read_error(fields), fields.unknown)


@dataclass(frozen=True, slots=True)
class DeregistrationResponse:
    """The registrar's answer to Deregistration (section 2.2.4)."""

    TYPE: ClassVar[int] = 0x04
    handle: bytes
    identifier: int
    error: tuple[ErrorCause, ...] = ()
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (encode_handle(self.handle), encode_identifier(self.identifier), encode_error(self.error))

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        fields = Parameters(body, _RESPONSE)
        identifier = wire.read_uint32(fields.required(P.PE_IDENTIFIER))
        return cls(fields.required(P.POOL_HANDLE), identifier, read_error(fields), fields.unknown)


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
        fields = Parameters(body, frozenset({P.POOL_HANDLE, P.PE_IDENTIFIER}), start=4)
        value = fields.optional(P.PE_IDENTIFIER)
        identifier = None if value is None else wire.read_uint32(value)
        return cls(registrar, fields.required(P.POOL_HANDLE), identifier, bool(flags & 0x01), fields.unknown)


class EndpointKeepAliveAck(AboutElement):
    """A pool element's answer to EndpointKeepAlive: it lives (section 2.2.8)."""

    __slots__ = ()
    TYPE = 0x08


@dataclass(frozen=True, slots=True)
class HandleResolution:
    """A pool user asks who is in a pool (section 2.2.5).

    `items` is how many elements it wants: rsplib's addition, see `rspregistrar.MOST_RESOLVED`. None leaves
    the number to the registrar. `subscribe` asks for updates; rspregistrar ignores it.
    """

    TYPE: ClassVar[int] = 0x05
    handle: bytes
    items: int | None = None
    subscribe: bool = False
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        items = b"" if self.items is None else parameter(P.ITEM_COUNT, uint32(self.items))
        return int(self.subscribe), (encode_handle(self.handle), items)

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        fields = Parameters(body, frozenset({P.POOL_HANDLE, P.ITEM_COUNT}))
        value = fields.optional(P.ITEM_COUNT)
        items = None if value is None else wire.read_uint32(value)
        return cls(fields.required(P.POOL_HANDLE), items, bool(flags & 0x01), fields.unknown)


@dataclass(frozen=True, slots=True)
class HandleResolutionResponse:
    """The registrar's answer to HandleResolution (section 2.2.6).

    An empty pool and an unknown one look the same: `error` holds UNKNOWN_POOL_HANDLE.
    """

    TYPE: ClassVar[int] = 0x06
    handle: bytes
    policy: Policy | None = None
    pool_elements: tuple[PoolElement, ...] = ()
    error: tuple[ErrorCause, ...] = ()
    accepts_subscription: bool = False
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        policy = b"" if self.policy is None else encode_policy(self.policy)
        elements = (encode_pool_element(element) for element in self.pool_elements)
        return int(self.accepts_subscription), (
            encode_handle(self.handle),
            policy,
            *elements,
            encode_error(self.error),
        )

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        fields = Parameters(body, frozenset({P.POOL_HANDLE, P.POLICY, P.POOL_ELEMENT, P.OPERATION_ERROR}))
        policy = fields.optional(P.POLICY)
        return cls(
            handle=fields.required(P.POOL_HANDLE),
            policy=None if policy is None else decode_policy(policy),
            pool_elements=tuple(decode_pool_element(value) for value in fields.all(P.POOL_ELEMENT)),
            error=read_error(fields),
            accepts_subscription=bool(flags & 0x01),
            unknown=fields.unknown,
        )


class EndpointUnreachable(AboutElement):
    """A pool user tells the registrar that it cannot reach a pool element (section 2.2.9)."""

    __slots__ = ()
    TYPE = 0x09


@dataclass(frozen=True, slots=True)
class HoldsCookie:
    """The field of the cookie messages."""

    TYPE: ClassVar[int]
    cookie: bytes
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (parameter(P.COOKIE, self.cookie),)

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        fields = Parameters(body, frozenset({P.COOKIE}))
        return cls(fields.required(P.COOKIE), fields.unknown)


class Cookie(HoldsCookie):
    """A pool element gives a pool user its session state, to keep for the next element (section 2.2.11)."""

    __slots__ = ()
    TYPE = 0x0B


class CookieEcho(HoldsCookie):
    """A pool user hands the state it kept to the next pool element (section 2.2.12)."""

    __slots__ = ()
    TYPE = 0x0C


@dataclass(frozen=True, slots=True)
class BusinessCard:
    """A pool element tells a pool user who is to take over for it, or who it is itself (section 2.2.13)."""

    TYPE: ClassVar[int] = 0x0D
    handle: bytes
    policy: Policy
    pool_elements: tuple[PoolElement, ...] = ()
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        elements = (encode_pool_element(element) for element in self.pool_elements)
        return 0, (encode_handle(self.handle), encode_policy(self.policy), *elements)

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        fields = Parameters(body, frozenset({P.POOL_HANDLE, P.POLICY, P.POOL_ELEMENT}))
        elements = tuple(decode_pool_element(value) for value in fields.all(P.POOL_ELEMENT))
        return cls(
            fields.required(P.POOL_HANDLE), decode_policy(fields.required(P.POLICY)), elements, fields.unknown
        )


__all__ = [
    "PORT",
    "PPID",
    "AsapError",
    "AsapMessage",
    "BusinessCard",
    "Cookie",
    "CookieEcho",
    "Deregistration",
    "DeregistrationResponse",
    "EndpointKeepAlive",
    "EndpointKeepAliveAck",
    "EndpointUnreachable",
    "HandleResolution",
    "HandleResolutionResponse",
    "Registration",
    "RegistrationResponse",
    "ServerAnnounce",
    "decode",
    "encode",
]

PORT = 3863
"""The registrars' SCTP port for ASAP; also the UDP port of announcements."""
PPID = 11
"""SCTP payload protocol identifier."""


@dataclass(frozen=True, slots=True)
class ServerAnnounce:
    """A registrar says that it is there, by multicast (section 2.2.10)."""

    TYPE: ClassVar[int] = 0x0A
    registrar: int
    transports: tuple[Transport, ...] = ()
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (uint32(self.registrar), *map(encode_transport, self.transports))

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        registrar = wire.read_uint32(body[:4])
        fields = Parameters(body, TRANSPORT_TYPES, start=4)
        return cls(registrar, decode_transports(fields), fields.unknown)


@dataclass(frozen=True, slots=True)
class AsapError:
    """A message of the other side could not be understood or done (section 2.2.14)."""

    TYPE: ClassVar[int] = 0x0E
    error: tuple[ErrorCause, ...]
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (encode_error(self.error),)

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        fields = Parameters(body, frozenset({ParameterType.OPERATION_ERROR}))
        return cls(decode_causes(fields.required(ParameterType.OPERATION_ERROR)), fields.unknown)


AsapMessage = (
    Registration
    | Deregistration
    | RegistrationResponse
    | DeregistrationResponse
    | HandleResolution
    | HandleResolutionResponse
    | EndpointKeepAlive
    | EndpointKeepAliveAck
    | EndpointUnreachable
    | ServerAnnounce
    | Cookie
    | CookieEcho
    | BusinessCard
    | AsapError
)

MESSAGES: dict[int, type[AsapMessage]] = {message.TYPE: message for message in AsapMessage.__args__}
"""Every message by its type number."""


def encode(message: AsapMessage) -> bytes:
    """Return the bytes of one message; raise EncodeError when a value does not fit its field."""
    return wire.encode(message)


def decode(data: bytes) -> AsapMessage:
    """Read one message, which is one SCTP user message; raise DecodeError (nothing else) when it is none."""
    return wire.decode(data, MESSAGES)
