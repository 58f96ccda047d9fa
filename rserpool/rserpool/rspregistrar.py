"""Facts about rsplib's registrar, rspregistrar, each once; and the last look at a message before it is sent.

Some messages make rspregistrar end itself, whoever sends them: one with a pool handle longer than 32 bytes,
with a TCP or UDP transport of several addresses, or with the registrar identifier 0 in ENRP. Several kinds do
so with any parameter that it does not know, even one that it should skip. Every sender of this project calls
`check_safe` right before the socket.
"""

from collections.abc import Iterator
from typing import Final

from rserpool import asap, enrp
from rserpool.errors import UnsafeMessageError
from rserpool.parameters import PoolElement, Protocol, ServerInformation, Transport, UnknownParameter

MAX_HANDLE: Final = 32
"""Bytes of the longest pool handle it survives."""
MOST_RESOLVED: Final = 128
"""Pool elements in its answer to a handle resolution, at most; of a larger pool it leaves some out, and does
not say so. It names 3 when the question does not say how many."""
REPORTS_THAT_REMOVE: Final = 3
"""Reports of "endpoint unreachable" that make it remove a pool element."""
SHORTEST_KEEP_ALIVE_S: Final = 0.3
"""It asks a pool element for a sign of life no more often; what comes sooner was held up on the way."""

SENTINEL_POOL_PREFIX: Final = "rspdns-sentinel-"
"""It gives the same answer for a pool without elements as before it knows the handlespace. So each registrar
is given a pool element of its own, the sentinel, in a pool whose handle begins so."""


def sentinel_handle(number: int) -> str:
    """Return the handle of the pool of registrar `number`'s sentinel, counted from 1."""
    return f"{SENTINEL_POOL_PREFIX}{number}"


def check_handle(handle: bytes) -> None:
    """Raise UnsafeMessageError unless the pool handle has 1..32 bytes."""
    if not 1 <= len(handle) <= MAX_HANDLE:
        raise UnsafeMessageError(
            f"pool handle {handle[:40]!r} has {len(handle)} bytes; 1 to {MAX_HANDLE} are safe"
        )


def check_transport(transport: Transport) -> None:
    """Raise UnsafeMessageError for a TCP or UDP transport that has not exactly one address."""
    if transport.protocol is not Protocol.SCTP and len(transport.addresses) != 1:
        raise UnsafeMessageError(
            f"a {transport.protocol.name} transport with {len(transport.addresses)} addresses; "
            "only SCTP may have other than one"
        )


def check_known(unknown: tuple[UnknownParameter, ...]) -> None:
    """Raise UnsafeMessageError for parameters kept from decoding, which must not be passed on."""
    if unknown:
        raise UnsafeMessageError(
            f"parameter 0x{unknown[0].type:04x} is unknown; unknown ones are not passed on"
        )


def check_senders(message: asap.AsapMessage | enrp.EnrpMessage) -> None:
    """Raise UnsafeMessageError for a message of ENRP that names the registrar 0 as sender, peer or target."""
    if isinstance(message, asap.AsapMessage):
        return
    named = [message.sender, *(server.identifier for server in _servers(message))]
    if isinstance(message, enrp.AboutTarget):
        named.append(message.target)
    if 0 in named:
        raise UnsafeMessageError(
            f"{type(message).__name__} names the registrar 0; identifiers are 1 to 0xffffffff"
        )


def check_safe(message: asap.AsapMessage | enrp.EnrpMessage) -> None:
    """Raise UnsafeMessageError when rspregistrar might abort on this message; otherwise do nothing."""
    check_known(message.unknown)
    check_senders(message)
    for handle in _handles(message):
        check_handle(handle)
    for element in _pool_elements(message):
        check_known(element.unknown)
    for server in _servers(message):
        check_known(server.unknown)
    for transport in _transports(message):
        check_known(transport.unknown)
        check_transport(transport)


def _handles(message: asap.AsapMessage | enrp.EnrpMessage) -> Iterator[bytes]:
    if isinstance(message, enrp.HandleTableResponse):
        yield from (pool.handle for pool in message.pools)
    elif (handle := getattr(message, "handle", None)) is not None:
        yield handle


def _transports(message: asap.AsapMessage | enrp.EnrpMessage) -> Iterator[Transport]:
    for element in _pool_elements(message):
        yield element.user_transport
        if element.asap_transport is not None:
            yield element.asap_transport
    yield from (server.transport for server in _servers(message))
    if isinstance(message, asap.ServerAnnounce):
        yield from message.transports


def _servers(message: asap.AsapMessage | enrp.EnrpMessage) -> Iterator[ServerInformation]:
    if isinstance(message, enrp.ListResponse):
        yield from message.servers
    elif isinstance(message, enrp.Presence) and message.server is not None:
        yield message.server


def _pool_elements(message: asap.AsapMessage | enrp.EnrpMessage) -> Iterator[PoolElement]:
    if isinstance(message, asap.Registration | enrp.HandleUpdate):
        yield message.pool_element
    elif isinstance(message, asap.HandleResolutionResponse | asap.BusinessCard):
        yield from message.pool_elements
    elif isinstance(message, enrp.HandleTableResponse):
        for pool in message.pools:
            yield from pool.pool_elements
