"""ASAP, the protocol of pool elements and pool users with registrars (RFC 5352): `encode` and `decode`.

The messages are in asap_element.py and asap_user.py; import them from here.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from rserpool import wire
from rserpool.asap_element import (
    Deregistration,
    DeregistrationResponse,
    EndpointKeepAlive,
    EndpointKeepAliveAck,
    Registration,
    RegistrationResponse,
)
from rserpool.asap_user import (
    DEFAULT_ITEMS,
    BusinessCard,
    Cookie,
    CookieEcho,
    EndpointUnreachable,
    HandleResolution,
    HandleResolutionResponse,
)
from rserpool.errors import Cause, decode_causes
from rserpool.parameters import (
    TRANSPORT_TYPES,
    Transport,
    UnknownParameter,
    decode_transports,
    encode_error,
    encode_transport,
)
from rserpool.wire import Parameters, ParameterType, uint32

__all__ = [
    "DEFAULT_ITEMS",
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
        found = Parameters(body, TRANSPORT_TYPES, start=4)
        return cls(registrar, decode_transports(found), found.unknown)


@dataclass(frozen=True, slots=True)
class AsapError:
    """What the other side sent could not be understood or done (section 2.2.14)."""

    TYPE: ClassVar[int] = 0x0E
    error: tuple[Cause, ...]
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (encode_error(self.error),)

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        found = Parameters(body, frozenset({ParameterType.OPERATION_ERROR}))
        return cls(decode_causes(found.one(ParameterType.OPERATION_ERROR)), found.unknown)


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
