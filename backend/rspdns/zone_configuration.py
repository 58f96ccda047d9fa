"""What may stand in a zone's file `zones.d/<zone>.toml`, key by key.

What must hold between keys, files and the records of the zone is checked in `rspdns.zone_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from daemon_kit.config_file import StrictModel, find
from daemon_kit.ip_text import read_network
from daemon_kit.path_types import PathText
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator
from rserpool.parameters import Protocol
from rserpool.safety import MAX_HANDLE

from rspdns import names, services
from rspdns.belief.rules import SENTINEL_POOL_PREFIX

Value = TypeVar("Value")
Network = IPv4Network | IPv6Network


def _handle(text: str) -> str:
    size = len(text.encode())
    if not 1 <= size <= MAX_HANDLE:
        raise ValueError(f"a pool handle has 1 to {MAX_HANDLE} bytes, this one {size}")
    if text.startswith(SENTINEL_POOL_PREFIX):
        raise ValueError("this handle belongs to the registrars' sentinels")
    return text


def _network(value: object) -> Network:
    if not isinstance(value, str):
        raise ValueError('a network is written as text: "10.20.0.0/16"')  # noqa: TRY004 - pydantic wants it
    return read_network(value)


def _label(text: str) -> str:
    if not names.is_label(text):
        raise ValueError("must be one DNS label: up to 63 of a-z, 0-9 and inner hyphens")
    return text


def _pool_name(text: str) -> str:
    return text if text == "@" else names.normal(text)


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def not_empty(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return `values`. Raises ValueError when there are none."""
    if not values:
        raise ValueError("needs at least one")
    return values


Handle = Annotated[str, AfterValidator(_handle)]
Seconds = Annotated[int, Field(ge=0, le=2**31 - 1)]


def _between_keys(pool: Mapping[str, object]) -> Iterator[str]:
    """Yield what is wrong between the keys of one pool, of which each by itself may be anything."""
    verify, service, handles = pool.get("verify"), pool.get("service"), pool.get("handles")
    if isinstance(service, str):
        *_, name, transport = ("", *service.lower().split("."))
        if verify == "tcp" and transport in ("_udp", "_sctp"):
            yield f'verify = "tcp" needs a service over TCP; {service} is not'
        if verify == "sip-options" and (transport == "_sctp" or name == "_sips"):
            yield f'verify = "sip-options" needs SIP over UDP or TCP; {service} is not'
    if pool.get("report_unreachable") is True and verify is None:
        yield "report_unreachable needs verify: without it nobody is probed"
    if ("handle" in pool) == ("handles" in pool):
        yield "needs either handle or handles"
    first = pool.get("handle", handles[0] if isinstance(handles, list | tuple) and handles else None)
    if isinstance(first, str) and first and "label" not in pool and not names.is_label(first):
        yield f"needs a label, since the handle {first!r} is no DNS label"


class PoolConfig(StrictModel):
    """One pool in a zone: which PEs, under which names, and how they are shown."""

    OTHER_NAMES: ClassVar[Mapping[str, str]] = {"pool": "handle", "pools": "handles", "networks": "accept"}

    handle: Handle | None = None
    handles: Annotated[tuple[Handle, ...], AfterValidator(not_empty)] | None = None
    """Several handles that shard one pool, since a handle resolution carries 128 members at most."""
    label: Annotated[str, BeforeValidator(_lower), AfterValidator(_label)] | None = None
    """The label of this pool in its target names; the handle where that is a label."""
    service: Annotated[str, BeforeValidator(_lower), AfterValidator(services.check)]
    """`_sip._udp`: the SRV records stand at `<service>.<name>.<zone>`."""
    name: Annotated[str, BeforeValidator(_lower), AfterValidator(_pool_name)]
    """Relative to the zone, "@" for its apex: A, AAAA and NAPTR stand at `<name>.<zone>`."""
    accept: Annotated[tuple[Annotated[Network, PlainValidator(_network)], ...], AfterValidator(not_empty)]
    """The networks a PE's address must be in; nobody joins uninvited."""
    when_empty: Literal["last-good", "static", "nodata", "servfail"] = "last-good"
    max_answers: Annotated[int, Field(ge=2, le=128)] = 8
    """SRV records in one answer, fewer where they would not fit into 512 bytes."""
    max_addresses: Annotated[int, Field(ge=1, le=16)] = 2
    """A, and AAAA, records in one answer; of several pools at one name the largest counts."""
    naptr_order: Annotated[int, Field(ge=0, le=65535)] = 10
    naptr_preference: Annotated[int, Field(ge=0, le=65535)] = 10
    naptr_service: Annotated[str, AfterValidator(services.check_naptr)] | None = None
    """`SIP+D2U`, say. For SIP it follows from `service` (RFC 3263); other services have none."""
    slow_start_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """How long a PE with a load policy takes to grow to its whole weight after coming in; 0: at once."""

    verify: Literal["tcp", "sip-options"] | None = None
    """The backend itself probes each member: by connecting over TCP, or by SIP OPTIONS over the member's
    transport."""
    verify_interval_ms: Annotated[int, Field(ge=20, le=60_000)] = 100
    """Between two probes of one member."""
    verify_timeout_ms: Annotated[int, Field(ge=30, le=10_000)] = 300
    """Of one probe, in which up to three attempts are made."""
    verify_fall: Annotated[int, Field(ge=1, le=20)] = 1
    """So many failed probes in a row take a member out ..."""
    verify_rise: Annotated[int, Field(ge=1, le=20)] = 2
    """... and so many good ones back in."""
    report_unreachable: bool = False
    """Tell a member's home registrar (ASAP Endpoint Unreachable, RFC 5352 section 3.5): it may remove it."""

    @model_validator(mode="after")
    def _keys_agree(self) -> PoolConfig:
        problem = next(_between_keys(self.model_dump(exclude_unset=True)), None)
        if problem is not None:
            raise ValueError(problem)
        return self

    @property
    def verification(self) -> tuple[object, ...]:
        """All that says how members are verified."""
        return (
            self.verify,
            self.verify_interval_ms,
            self.verify_timeout_ms,
            self.verify_fall,
            self.verify_rise,
            self.report_unreachable,
        )

    @property
    def _first_handle(self) -> str:
        return self.handle if self.handle is not None else (self.handles or ("",))[0]

    @property
    def shards(self) -> tuple[str, ...]:
        """The handles of the pool's members: one, or those of `handles`."""
        return self.handles if self.handles is not None else (self._first_handle,)

    @property
    def target_label(self) -> str:
        """The label that its target names carry."""
        return self.label or self._first_handle

    @property
    def protocol(self) -> Protocol:
        """The transport protocol that `service` is about; members of another are not shown."""
        return services.protocol(self.service)


class ZoneConfig(StrictModel):
    """One zone: a file `zones.d/<zone>.toml`."""

    zone: Annotated[str, AfterValidator(names.normal), Field(min_length=1)]
    static: PathText
    """The master file with SOA, NS and all other fixed records; relative to this file."""
    ttl: Seconds = 1
    """TTL of live records in seconds."""
    negative_ttl: Seconds | None = None
    """How long "no such name" may be remembered, in seconds; as long as live records if not given."""
    pools: tuple[PoolConfig, ...] = Field(default=(), alias="pool")

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield what is wrong between the pools: a handle twice, an SRV owner twice.

        Also what is wrong in one pool and can be told whatever else is: pydantic looks at no rule between the
        keys of a table that has a wrong one.
        """
        if "pools" in document:
            yield ("pools",), "unknown key; a pool is a table [[pool]]"
        seen: dict[str, int] = {}
        for pattern in (("pool", "*", "handle"), ("pool", "*", "handles", "*")):
            for place, handle in find(document, pattern):
                if isinstance(handle, str) and handle in seen:
                    first = f"pool[{seen[handle]}]"
                    yield (
                        place,
                        f"the handle {handle!r} is already used by {first}: one pool, one place in a zone",
                    )
                elif isinstance(handle, str) and isinstance(place[1], int):
                    seen[handle] = place[1]
        yield from _same_owner(document)
        for place, pool in find(document, ("pool", "*")):
            if isinstance(pool, dict):
                yield from ((place, problem) for problem in _between_keys(pool))

    @property
    def live_ttl_s(self) -> int:
        """TTL of live records in seconds."""
        return self.ttl

    @property
    def negative_ttl_s(self) -> int:
        """The largest TTL and MINIMUM of the SOA as served, in seconds."""
        return self.ttl if self.negative_ttl is None else self.negative_ttl


def _same_owner(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    owners: set[str] = set()
    for place, pool in find(document, ("pool", "*")):
        service, name = (
            (pool.get(key) for key in ("service", "name")) if isinstance(pool, dict) else (None, None)
        )
        if not isinstance(service, str) or not isinstance(name, str):
            continue
        owner = names.join(service.lower(), name.lower().rstrip("."))
        if owner in owners:
            yield (*place, "service"), f"another pool already has its SRV records at {owner!r}"
        owners.add(owner)
