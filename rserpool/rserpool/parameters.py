"""The parameters of ASAP and ENRP messages: transports, pool elements, registrars (RFC 5354, section 3)."""

import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from rserpool import policies, wire
from rserpool.errors import DecodeError, EncodeError, ErrorCause, decode_causes, encode_causes
from rserpool.policies import Policy
from rserpool.wire import Parameters, ParameterType
from rserpool.wire import UnknownParameter as UnknownParameter

KEPT_ELEMENTS, MAX_KEPT_BYTES = 32_768, 256
"""How many decoded pool elements are kept, and the most bytes of each."""
KEPT_PARTS = 1024
"""How many of their transports and policies are kept: many elements share those of one host, or of one
load."""

_PORT_AND_USE = struct.Struct(">HH")
_DCCP = struct.Struct(">HHI")
_POOL_ELEMENT = struct.Struct(">III")
_SERVER = struct.Struct(">I")
_CHECKSUM = struct.Struct(">H")


class Protocol(IntEnum):
    """Transport protocols; the value is the type of the transport parameter."""

    DCCP = ParameterType.DCCP_TRANSPORT
    SCTP = ParameterType.SCTP_TRANSPORT
    TCP = ParameterType.TCP_TRANSPORT
    UDP = ParameterType.UDP_TRANSPORT
    UDP_LITE = ParameterType.UDP_LITE_TRANSPORT

    @property
    def has_control_channel(self) -> bool:
        """True when the transport parameter says whether the protocol also carries a control channel."""
        return self in (Protocol.SCTP, Protocol.TCP)


def fresh_identifier() -> int:
    """Return an identifier that nobody else is likely to have, 1..0xfffffffe (RFC 5352, section 3.1)."""
    return 1 + secrets.randbelow(2**32 - 2)


TRANSPORT_TYPES = frozenset(int(protocol) for protocol in Protocol)


@dataclass(frozen=True, slots=True)
class Transport:
    """The transport address of something: protocol, port (0..65535), and addresses in the sender's order.

    `control_channel`: data and control channel share this transport; only SCTP and TCP can say so.
    `service_code` (0..0xffffffff) belongs to DCCP alone.
    """

    protocol: Protocol
    port: int
    addresses: tuple[IPv4Address | IPv6Address, ...]
    control_channel: bool = False
    service_code: int = 0
    unknown: tuple[UnknownParameter, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolElement:
    """A pool element (PE) as a registrar knows it.

    `identifier` (0..0xffffffff) is unique within its pool only. `home_registrar` is the identifier of the
    registrar that watches over it, 0 before it has one. `life_ms` is how long the registration lives without
    being renewed (0..0xffffffff). `asap_transport` is where the PE speaks ASAP; only ENRP tells.
    """

    identifier: int
    home_registrar: int
    life_ms: int
    user_transport: Transport
    policy: Policy
    asap_transport: Transport | None = None
    unknown: tuple[UnknownParameter, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerInformation:
    """A registrar: its identifier (0..0xffffffff) and where it speaks ENRP."""

    identifier: int
    transport: Transport
    unknown: tuple[UnknownParameter, ...] = ()


def encode_handle(handle: bytes) -> bytes:
    """Return a Pool Handle parameter."""
    return wire.parameter(ParameterType.POOL_HANDLE, handle)


def encode_identifier(identifier: int) -> bytes:
    """Return a PE Identifier parameter."""
    return wire.parameter(ParameterType.PE_IDENTIFIER, wire.uint32(identifier))


def encode_error(error: tuple[ErrorCause, ...]) -> bytes:
    """Return an Operation Error parameter, nothing when there is no cause."""
    return wire.parameter(ParameterType.OPERATION_ERROR, encode_causes(error)) if error else b""


def read_error(parameters: Parameters) -> tuple[ErrorCause, ...]:
    """Return the causes of the Operation Error parameter, empty when there is none."""
    value = parameters.optional(ParameterType.OPERATION_ERROR)
    return () if value is None else decode_causes(value)


def encode_address(address: IPv4Address | IPv6Address) -> bytes:
    """Return an IPv4 or IPv6 Address parameter."""
    version = ParameterType.IPV4_ADDRESS if address.version == 4 else ParameterType.IPV6_ADDRESS
    return wire.parameter(version, address.packed)


def encode_transport(transport: Transport) -> bytes:
    """Return a transport parameter; raise EncodeError for a port or flag the protocol cannot carry."""
    if transport.control_channel and not transport.protocol.has_control_channel:
        raise EncodeError(f"{transport.protocol.name} cannot carry a control channel")
    try:
        if transport.protocol is Protocol.DCCP:
            head = _DCCP.pack(transport.port, 0, transport.service_code)
        else:
            head = _PORT_AND_USE.pack(transport.port, transport.control_channel)
    except struct.error as problem:
        raise EncodeError(f"{transport}: {problem}") from None
    addresses = (encode_address(address) for address in transport.addresses)
    return wire.parameter(transport.protocol, head, *addresses, wire.unknown_parameters(transport.unknown))


_ADDRESS_TYPES = frozenset({ParameterType.IPV4_ADDRESS, ParameterType.IPV6_ADDRESS})


def decode_transport(protocol: Protocol, value: bytes) -> Transport:
    """Read the value of a transport parameter."""
    layout = _DCCP if protocol is Protocol.DCCP else _PORT_AND_USE
    port, use, *service_code = wire.fixed(value, layout)
    inner = Parameters(value, _ADDRESS_TYPES, layout.size)
    return Transport(
        protocol=protocol,
        port=port,
        addresses=tuple(_decode_address(version, address) for version, address in inner),
        control_channel=use == 1 and protocol.has_control_channel,
        service_code=service_code[0] if service_code else 0,
        unknown=inner.unknown,
    )


def _decode_address(version: int, value: bytes) -> IPv4Address | IPv6Address:
    if version == ParameterType.IPV4_ADDRESS and len(value) == 4:
        return IPv4Address(value)
    if version == ParameterType.IPV6_ADDRESS and len(value) == 16:
        return IPv6Address(value)
    raise DecodeError(f"{ParameterType(version).name} of {len(value)} bytes")


def encode_policy(policy: Policy) -> bytes:
    """Return a Policy parameter."""
    return wire.parameter(ParameterType.POLICY, policies.encode_policy(policy))


_IN_POOL_ELEMENT = frozenset({ParameterType.POLICY, *TRANSPORT_TYPES})


def encode_pool_element(element: PoolElement) -> bytes:
    """Return a Pool Element parameter (RFC 5354, section 3.10)."""
    try:
        head = _POOL_ELEMENT.pack(element.identifier, element.home_registrar, element.life_ms)
    except struct.error as problem:
        raise EncodeError(f"{element}: {problem}") from None
    return wire.parameter(
        ParameterType.POOL_ELEMENT,
        head,
        encode_transport(element.user_transport),
        encode_policy(element.policy),
        encode_transport(element.asap_transport) if element.asap_transport else b"",
        wire.unknown_parameters(element.unknown),
    )


def decode_pool_element(value: bytes) -> PoolElement:
    """Read the value of a Pool Element parameter: the first transport is the user's, a second ASAP's.

    The same bytes give the same object: registrars tell the same about most pool elements again and again.
    """
    return _kept_pool_element(value) if len(value) <= MAX_KEPT_BYTES else _decode_pool_element(value)


def _decode_pool_element(value: bytes) -> PoolElement:
    identifier, home_registrar, life_ms = wire.fixed(value, _POOL_ELEMENT)
    inner = Parameters(value, _IN_POOL_ELEMENT, _POOL_ELEMENT.size)
    is_kept = len(value) <= MAX_KEPT_BYTES
    transports = _transports(inner, _kept_transport if is_kept else decode_transport)
    if not 1 <= len(transports) <= 2:
        raise DecodeError(f"pool element 0x{identifier:08x} with {len(transports)} transports")
    decode_policy = _kept_policy if is_kept else policies.decode_policy
    return PoolElement(
        identifier=identifier,
        home_registrar=home_registrar,
        life_ms=life_ms,
        user_transport=transports[0],
        policy=decode_policy(inner.required(ParameterType.POLICY)),
        asap_transport=transports[1] if len(transports) == 2 else None,
        unknown=inner.unknown,
    )


_kept_pool_element = lru_cache(KEPT_ELEMENTS)(_decode_pool_element)
_kept_transport = lru_cache(KEPT_PARTS)(decode_transport)
_kept_policy = lru_cache(KEPT_PARTS)(policies.decode_policy)


def encode_server_information(server: ServerInformation) -> bytes:
    """Return a Server Information parameter (RFC 5354, section 3.11)."""
    return wire.parameter(
        ParameterType.SERVER_INFORMATION,
        wire.uint32(server.identifier),
        encode_transport(server.transport),
        wire.unknown_parameters(server.unknown),
    )


def decode_server_information(value: bytes) -> ServerInformation:
    """Read the value of a Server Information parameter."""
    (identifier,) = wire.fixed(value, _SERVER)
    inner = Parameters(value, TRANSPORT_TYPES, _SERVER.size)
    transports = _transports(inner)
    if len(transports) != 1:
        raise DecodeError(f"registrar 0x{identifier:08x} with {len(transports)} transports")
    return ServerInformation(identifier, transports[0], inner.unknown)


def decode_transports(parameters: Parameters) -> tuple[Transport, ...]:
    """Read every transport parameter among `parameters`, in order."""
    return tuple(_transports(parameters))


def _transports(
    parameters: Parameters, decode: Callable[[Protocol, bytes], Transport] = decode_transport
) -> list[Transport]:
    return [
        decode(Protocol(parameter_type), value)
        for parameter_type, value in parameters
        if parameter_type in TRANSPORT_TYPES
    ]


def encode_checksum(checksum: int) -> bytes:
    """Return a PE Checksum parameter (0..65535)."""
    try:
        return wire.parameter(ParameterType.PE_CHECKSUM, _CHECKSUM.pack(checksum))
    except struct.error:
        raise EncodeError(f"checksum {checksum} is not in 0..65535") from None


def decode_checksum(value: bytes) -> int:
    """Read the value of a PE Checksum parameter."""
    if len(value) != _CHECKSUM.size:
        raise DecodeError(f"PE checksum of {len(value)} bytes")
    return int.from_bytes(value, "big")
