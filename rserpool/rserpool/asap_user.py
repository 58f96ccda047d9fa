"""ASAP between a pool user, a registrar and a pool element (RFC 5352, section 2.2).

Every field `handle` is a pool handle; `identifier` is that of a pool element (0..0xffffffff); `error` says
why something was refused, and is empty when nothing was.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from rserpool import wire
from rserpool.asap_element import AboutElement
from rserpool.errors import Cause
from rserpool.parameters import (
    PoolElement,
    UnknownParameter,
    decode_pool_element,
    encode_error,
    encode_handle,
    encode_policy,
    encode_pool_element,
    read_error,
)
from rserpool.policies import Policy, decode_policy
from rserpool.wire import Parameters, parameter, uint32
from rserpool.wire import ParameterType as P

DEFAULT_ITEMS = 128
"""Pool elements to ask for in one handle resolution; rspregistrar gives at most 128, and 3 when not asked."""


@dataclass(frozen=True, slots=True)
class HandleResolution:
    """A pool user asks who is in a pool (section 2.2.5).

    `items` is how many elements it wants (rsplib's addition; None leaves the number to the registrar).
    `subscribe` asks for updates; rspregistrar ignores it.
    """

    TYPE: ClassVar[int] = 0x05
    handle: bytes
    items: int | None = DEFAULT_ITEMS
    subscribe: bool = False
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        items = b"" if self.items is None else parameter(P.ITEM_COUNT, uint32(self.items))
        return int(self.subscribe), (encode_handle(self.handle), items)

    @classmethod
    def _from_wire(cls, flags: int, body: bytes) -> Self:
        found = Parameters(body, frozenset({P.POOL_HANDLE, P.ITEM_COUNT}))
        value = found.optional(P.ITEM_COUNT)
        items = None if value is None else wire.read_uint32(value)
        return cls(found.one(P.POOL_HANDLE), items, bool(flags & 0x01), found.unknown)


@dataclass(frozen=True, slots=True)
class HandleResolutionResponse:
    """The registrar's answer to HandleResolution (section 2.2.6).

    An empty pool and an unknown one look the same: `error` holds UNKNOWN_POOL_HANDLE.
    """

    TYPE: ClassVar[int] = 0x06
    handle: bytes
    policy: Policy | None = None
    pool_elements: tuple[PoolElement, ...] = ()
    error: tuple[Cause, ...] = ()
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
        found = Parameters(body, frozenset({P.POOL_HANDLE, P.POLICY, P.POOL_ELEMENT, P.OPERATION_ERROR}))
        policy = found.optional(P.POLICY)
        return cls(
            handle=found.one(P.POOL_HANDLE),
            policy=None if policy is None else decode_policy(policy),
            pool_elements=tuple(decode_pool_element(value) for value in found.all(P.POOL_ELEMENT)),
            error=read_error(found),
            accepts_subscription=bool(flags & 0x01),
            unknown=found.unknown,
        )


class EndpointUnreachable(AboutElement):
    """A pool user tells the registrar that it cannot reach a pool element (section 2.2.9)."""

    __slots__ = ()
    TYPE = 0x09


@dataclass(frozen=True, slots=True)
class HoldsCookie:
    """What the cookie messages hold."""

    TYPE: ClassVar[int]
    cookie: bytes
    unknown: tuple[UnknownParameter, ...] = ()

    def _to_wire(self) -> tuple[int, tuple[bytes, ...]]:
        return 0, (parameter(P.COOKIE, self.cookie),)

    @classmethod
    def _from_wire(cls, _flags: int, body: bytes) -> Self:
        found = Parameters(body, frozenset({P.COOKIE}))
        return cls(found.one(P.COOKIE), found.unknown)


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
        found = Parameters(body, frozenset({P.POOL_HANDLE, P.POLICY, P.POOL_ELEMENT}))
        elements = tuple(decode_pool_element(value) for value in found.all(P.POOL_ELEMENT))
        return cls(found.one(P.POOL_HANDLE), decode_policy(found.one(P.POLICY)), elements, found.unknown)
