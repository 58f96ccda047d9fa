"""The keys of a zone's file `zones.d/<zone>.toml`; its services by name.

The conditions between keys, files and the records of the zone are checked in `rspdns.zones.checks`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, Any, ClassVar, Literal

from daemon_kit.addresses import endpoint
from daemon_kit.config_file import StrictModel, find
from daemon_kit.files import PathText
from pool_user import (
    MAX_MEMBERS,
    AcceptNetworks,
    Handle,
    Handlespace,
    HandlespaceName,
    KeyFile,
    RemoteAgents,
    not_empty,
    read_trusted_network,
)
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    model_validator,
)

from rserpool import Protocol
from rspdns import names
from rspdns.zones.cells import Cell, read_cells
from rspdns.zones.cells import problems as cell_problems
from rspdns.zones.near import AnyNetwork, NearOrder, check_order, near_network
from rspdns.zones.sites import SiteOrder, SiteRules, Sites, site_at
from rspdns.zones.svcb import SvcbConfig

_SERVICE = re.compile(r"_[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?\._(udp|tcp|sctp)")
_NAPTR = re.compile(r"[A-Za-z0-9:.+-]{1,64}")
_PROTOCOLS = {"_udp": Protocol.UDP, "_tcp": Protocol.TCP, "_sctp": Protocol.SCTP}
_SIP = {
    "_sip._udp": "SIP+D2U",
    "_sip._tcp": "SIP+D2T",
    "_sip._sctp": "SIP+D2S",
    "_sips._tcp": "SIPS+D2T",
    "_sips._sctp": "SIPS+D2S",
}
"""RFC 3263 section 4.1 and RFC 4168 section 6."""


def check_service(service: str) -> str:
    """Return `service`. Raises ValueError when it is none that RSerPool's transport protocols can carry."""
    if not _SERVICE.fullmatch(service):
        raise ValueError('must be like "_sip._udp", ending in _udp, _tcp or _sctp')
    return service


def check_naptr_service(name: str) -> str:
    """Return `name`, a NAPTR services field (RFC 3403). Raises ValueError when it is none."""
    if not _NAPTR.fullmatch(name):
        raise ValueError('must be like "SIP+D2U"')
    return name


def protocol_of(service: str) -> Protocol:
    """The transport protocol of a service that `check_service()` accepts."""
    return _PROTOCOLS[service.rpartition(".")[2]]


def naptr_service_of(service: str) -> str | None:
    """The service's name in NAPTR records; None when no RFC gives it a name."""
    return _SIP.get(service)


MOST_EXPECTED = 10_000
_MOST_TOLD = 8
"""Errors told of one table; of more, how many."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Expected:
    """A server that should be in, and what people call it; the handlespace for it, where that is told."""

    address: IPv4Address | IPv6Address
    port: int
    name: str
    handlespace: str = ""


def _expect(value: object) -> int | tuple[Expected, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MOST_EXPECTED:
            raise ValueError(f"a number of servers, 1 to {MOST_EXPECTED}")
        return value
    if not isinstance(value, dict) or not value:
        words = 'a number of servers, or a table of their addresses: {"10.20.0.5:5060" = "sip-1"}'
        raise ValueError(words)
    servers, problems = _each_expected(value)
    if len(servers) > MOST_EXPECTED:
        raise ValueError(f"{len(servers)} servers; {MOST_EXPECTED} at most")
    problems += _twice(servers)
    if problems:
        more = len(problems) - _MOST_TOLD
        raise ValueError("; ".join(problems[:_MOST_TOLD]) + (f"; {more} more errors" if more > 0 else ""))
    return tuple(servers)


def _twice(servers: Sequence[Expected]) -> Iterator[str]:
    """Yield the addresses and names that two servers of a handlespace have. Those outside of the tables for
    handlespaces are in all of them."""
    tables = dict.fromkeys(each.handlespace for each in servers if each.handlespace)
    found: dict[str, None] = {}
    for handlespace in tables or ("",):
        within = [each for each in servers if each.handlespace in ("", handlespace)]
        for of_all in (
            [endpoint(str(each.address), each.port) for each in within],
            [each.name for each in within],
        ):
            found |= {text: None for text, times in Counter(of_all).items() if times > 1}
    yield from (f"{text} is there twice" for text in found)


def _each_expected(table: Mapping[str, object]) -> tuple[list[Expected], list[str]]:
    """The servers of the table `expect`, which may have a table for each handlespace, and what is wrong with
    the others."""
    servers, problems = [], []
    of_handlespaces = {name: part for name, part in table.items() if isinstance(part, dict)}
    whole = {name: part for name, part in table.items() if name not in of_handlespaces}
    for handlespace, part in {"": whole, **of_handlespaces}.items():
        for text, name in part.items():
            try:
                servers.append(_expected(text, name, handlespace))
            except ValueError as problem:
                problems.append(str(problem))
    return servers, problems


def _near(value: object) -> Mapping[AnyNetwork, NearOrder]:
    if not isinstance(value, dict) or not value:
        raise ValueError('a table of networks: {"10.1.0.0/16" = ["eu", "us"]}')
    orders: dict[AnyNetwork, NearOrder] = {}
    problems = []
    for text, sites in value.items():
        try:
            network = near_network(text)
            check_order(sites if isinstance(sites, list | tuple) else ())
        except ValueError as problem:
            problems.append(f"{text}: {problem}")
            continue
        if network in orders:
            problems.append(f"{network} is there twice")
        orders[network] = tuple(sites)
    if problems:
        more = len(problems) - _MOST_TOLD
        raise ValueError("; ".join(problems[:_MOST_TOLD]) + (f"; {more} more errors" if more > 0 else ""))
    return orders


def _as_is(value: object) -> object:
    return value


def _expected(text: str, name: object, handlespace: str) -> Expected:
    host, _, port = text.rpartition(":")
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        address = None
    if address is None or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        example = '"10.20.0.5:5060" or "[2001:db8::5]:5060"'
        raise ValueError(f"{text!r} is no address with a port, as {example}")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"the name of {text}, {name!r}, is not up to 63 letters, digits, and . _ - inside")
    return Expected(address, int(port), name, handlespace)


def _label(text: str) -> str:
    if not names.is_label(text):
        raise ValueError("must be one DNS label: up to 63 of a-z, 0-9 and inner hyphens")
    return text


def _pool_name(text: str) -> str:
    return text if text == "@" else names.normal(text)


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


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
        if pool.get("svcb") is not None and (transport == "_sctp" or name in ("_sip", "_sips")):
            yield f"has no use for svcb: clients of {service} read SRV and NAPTR records"
    if pool.get("key") is not None and pool.get("remote_agents"):
        yield "has no use for key with remote_agents: the identifier of a remote server is its address"
    yield from _unwelcome(pool.get("expect"), pool.get("accept"))
    if pool.get("report_unreachable") is True and verify is None:
        yield "report_unreachable needs verify: without it nobody is probed"
    for key in ("max_answers", "max_addresses"):
        if pool.get("answers") == "all" and key in pool:
            yield f'has no use for {key} with answers = "all": the answers hold the whole pool'
    if pool.get("affinity") is not None and pool.get("answers") == "all":
        yield 'has no use for affinity with answers = "all": clients that keep a list choose by themselves'
    yield from _of_sites(pool)
    yield from cell_problems(pool)
    if ("handle" in pool) == ("handles" in pool):
        yield "needs either handle or handles"
    if "handlespace" in pool and "handlespaces" in pool:
        yield "takes either handlespace or handlespaces"
    several = pool.get("handlespaces")
    if isinstance(several, list | tuple) and len({*map(str, several)}) < len(several):
        yield "handlespaces: a name is there twice"
    first = pool.get("handle", handles[0] if isinstance(handles, list | tuple) and handles else None)
    if isinstance(first, str) and first and "label" not in pool and not names.is_label(first):
        yield f"needs a label, since the handle {first!r} is no DNS label"


_NEEDS_ORDER = ("min_in", "min_share", "spill_at", "spill_back", "back_after_s", "near", "near_file")


def _of_sites(pool: Mapping[str, object]) -> Iterator[str]:
    """Yield what is wrong between the keys about sites."""
    given = [key for key in _NEEDS_ORDER if key in pool]
    if given and "order" not in pool:
        yield f"{', '.join(given)} needs order: the sites of the pool"
    if pool.get("min_share") is not None and not isinstance(pool.get("expect"), dict | tuple):
        yield "min_share needs expect as a table: the servers of each site"
    at, back = pool.get("spill_at"), pool.get("spill_back")
    if back is not None and at is None:
        yield "spill_back needs spill_at"
    if isinstance(at, int | float) and isinstance(back, int | float) and back >= at:
        yield "spill_back must be below spill_at"


def _unwelcome(expect: object, accept: object) -> Iterator[str]:
    """Yield the expected addresses that `accept` would refuse; what is wrong by itself is told elsewhere."""
    if not isinstance(expect, dict) or not isinstance(accept, list | tuple):
        return
    try:
        networks = [read_trusted_network(network) for network in accept]
    except ValueError:
        return
    for server in _each_expected(expect)[0]:
        if not any(
            server.address.version == network.version and server.address in network for network in networks
        ):
            yield f"expect: {server.address} ({server.name}) is not in accept, so it could never come in"


class PoolConfig(StrictModel):
    """One pool in a zone: which PEs, under which names, and how they are shown."""

    OTHER_NAMES: ClassVar[Mapping[str, str]] = {"pool": "handle", "pools": "handles", "networks": "accept"}

    handle: Handle | None = None
    """The pool handle, 1 to 32 bytes; this or `handles`."""
    handles: Annotated[tuple[Handle, ...], AfterValidator(not_empty)] | None = None
    """Several handles that shard one pool, since a handle resolution carries 128 members at most."""
    handlespace: HandlespaceName | None = None
    """The `[[handlespace]]` of rspdns.toml that its members register in; needed if there are several."""
    handlespaces: Annotated[tuple[HandlespaceName, ...], AfterValidator(not_empty)] | None = None
    """Several handlespaces that have members of this pool: each member is believed by the registrars of its
    own. A target name then ends in the handlespace's name, `<PE id>-<handlespace>`."""
    label: Annotated[str, BeforeValidator(_lower), AfterValidator(_label)] | None = None
    """The label of this pool in its target names; the handle where that is a label."""
    service: Annotated[str, BeforeValidator(_lower), AfterValidator(check_service)]
    """`_sip._udp`: the SRV records stand at `<service>.<name>.<zone>`."""
    name: Annotated[str, BeforeValidator(_lower), AfterValidator(_pool_name)]
    """Relative to the zone, "@" for its apex: A, AAAA and NAPTR stand at `<name>.<zone>`."""
    accept: AcceptNetworks
    """The networks a PE's address must be in. A PE elsewhere is refused, as is one at a network's first or
    last address (its own and the broadcast address)."""
    key: KeyFile | None = None
    """The key file of a keyed pool, by its whole path (`rspdns key new`). A PE then counts only when its
    sidecar has the key of its address and port."""
    remote_agents: RemoteAgents = ()
    """Hosts of sidecars that register servers elsewhere (`remote = true` in agent.toml): their addresses
    towards the registrars. All that they register in this pool is taken for remote."""
    cells: Annotated[tuple[Cell, ...], PlainValidator(read_cells), PlainSerializer(_as_is)] | None = None
    """The elements are gateways of cells (`rspdns gateway`), not servers: a table of the gateways' networks
    and the names of their cells. NAPTR and SRV records then lead to these names; there are no A and AAAA
    records."""
    expect: Annotated[int | tuple[Expected, ...], PlainValidator(_expect), PlainSerializer(_as_is)] | None = (
        None
    )
    """The servers that should be in: how many, or a table of their addresses and ports with names. A
    missing server stays shown. Without this key: every server that was in during the last day, until
    `rspdns
    forget`."""
    max_members: Annotated[int, Field(ge=2, le=10_000)] = MAX_MEMBERS
    """The most PEs of each handle. Further ones are refused, so that one host can't fill the backend."""
    when_empty: Literal["last-good", "static", "nodata", "servfail"] = "last-good"
    """The answer without a living member: the members that were in last, the SRV, A and AAAA records of the
    zone file, nothing, or SERVFAIL."""
    answers: Literal["some", "all"] = "some"
    """`"all"`: SRV, A and AAAA answers hold the whole pool, for clients that keep a list of servers (HAProxy,
    nginx, Prometheus). Answers that don't fit over UDP are truncated, so that the client asks again over
    TCP."""
    max_answers: Annotated[int, Field(ge=2, le=128)] = 8
    """SRV records in one answer, fewer where they would not fit into 512 bytes."""
    max_addresses: Annotated[int, Field(ge=1, le=16)] = 2
    """A, and AAAA, records in one answer; of several pools at one name the largest counts."""
    weights: Literal["narrow", "wide"] = "narrow"
    """The scale of SRV weights: an idle server has 1000, or 65535 with `"wide"`. The ratios are the same.
    HAProxy needs wide weights: it divides each by 256."""
    naptr_order: Annotated[int, Field(ge=0, le=65535)] = 10
    """The order of this pool's NAPTR record; the lowest is tried first."""
    naptr_preference: Annotated[int, Field(ge=0, le=65535)] = 10
    """The preference of this pool's NAPTR record among those of the same order."""
    naptr_service: Annotated[str, AfterValidator(check_naptr_service)] | None = None
    """`SIP+D2U`, say. For SIP it follows from `service` (RFC 3263); other services have none."""
    svcb: SvcbConfig | None = None
    """HTTPS or SVCB records of the members (RFC 9460), for browsers: `svcb = { alpn = ["h3", "h2"] }`."""
    slow_start_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """How long a PE with a load policy takes to grow to its whole weight after coming in; 0: at once."""

    order: SiteOrder | None = None
    """The sites of its servers ([[site]] in rspdns.toml), the first one first; or `"own-first"`: that of this
    name server before the others. The first site that is enough gets the calls."""
    min_in: Annotated[int, Field(ge=1, le=10_000)] = 1
    """A site is enough with so many members in. Only with `order`, as the next four."""
    min_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """A site is enough with this part of its servers in `expect`, which then is a table, or one for each
    handlespace where sites are handlespaces: `expect.eu = { "10.20.0.5:5060" = "sip-1" }`."""
    spill_at: Annotated[float, Field(gt=0, le=1)] | None = None
    """The mean load of the first site from which on the next one gets a part of the calls, by its weights."""
    spill_back: Annotated[float, Field(ge=0, lt=1)] | None = None
    """The mean load at which, or below which, that ends after `back_after_s`; three quarters of `spill_at` if
    not given."""
    back_after_s: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """How long a site that was not enough must be enough until it counts again, and how long the load of a
    site that spills must be at or below `spill_back` until that ends."""

    near: Annotated[Mapping[AnyNetwork, NearOrder], PlainValidator(_near), PlainSerializer(_as_is)] | None = (
        None
    )
    """The sites that are near to askers in a network: `{ "10.1.0.0/16" = ["us", "eu"] }`. The longest prefix
    counts. Sites that are not named follow in the order of `order`; so do all sites for other askers."""
    near_file: PathText | None = None
    """A file of such networks, lines `10.1.0.0/16,us,eu` (`rspdns near import`); relative to this file."""
    affinity: Literal["asker"] | None = None
    """`"asker"`: each asker has a first and a second server of its own; when a server leaves, only its own
    askers get others. An asker is an address, or the prefix that a resolver tells for its clients."""

    verify: Literal["tcp", "sip-options"] | None = None
    """The backend itself probes each member: by connecting over TCP, or by SIP OPTIONS over the member's
    transport."""
    verify_interval_ms: Annotated[int, Field(ge=20, le=60_000)] = 100
    """Time between two probes of one member."""
    verify_timeout_ms: Annotated[int, Field(ge=30, le=10_000)] = 300
    """How long one probe waits for an answer; it makes up to three attempts in this time."""
    verify_fall: Annotated[int, Field(ge=1, le=20)] = 1
    """The number of failed probes in a row that take a member out."""
    verify_rise: Annotated[int, Field(ge=1, le=20)] = 2
    """The number of good probes in a row that take a member back in."""
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
    def own_handlespaces(self) -> tuple[str, ...]:
        """The names of its handlespaces; none where the only one has no name."""
        return self.handlespaces or ((self.handlespace,) if self.handlespace is not None else ())

    @property
    def shards(self) -> tuple[str, ...]:
        """The pool's parts, as the belief names them: a handle, or `handlespace/handle`, and several where
        it has several of either."""
        handles = self.handles if self.handles is not None else (self._first_handle,)
        return tuple(
            Handlespace(name, ()).pool(handle)
            for name in self.own_handlespaces or ("",)
            for handle in handles
        )

    def member_label(self, identifier: int, shard: str) -> str:
        """The first label of a member's target name. Identifiers are unique in a handlespace at most: in
        several they get its name, so that no member of another can take the name of a member over."""
        label = f"{identifier:08x}"
        return f"{label}-{shard.partition('/')[0]}" if len(self.own_handlespaces) > 1 else label

    @property
    def longest_label(self) -> str:
        """A first label of its target names as long as any."""
        longest = max(self.own_handlespaces, key=len) if len(self.own_handlespaces) > 1 else ""
        return "00000000" + ("-000" if len(self.shards) > 1 else "") + (f"-{longest}" if longest else "")

    @property
    def target_label(self) -> str:
        """The label that its target names carry."""
        return self.label or self._first_handle

    def shards_in(self, handlespace: str) -> tuple[str, ...]:
        """The pool's parts in a handlespace; all if it is empty."""
        return tuple(shard for shard in self.shards if not handlespace or shard.startswith(f"{handlespace}/"))

    def site_rules(self, sites: Sites) -> SiteRules | None:
        """The rules by which its sites follow each other; None without `order`."""
        if self.order is None or self.site_problem(sites) is not None:
            return None
        names_in_order = sites.ordered(self.order)
        expected = self.expect if isinstance(self.expect, tuple) else ()
        of_handlespaces = {handlespace: name for name, handlespace in sites.handlespaces.items()}
        of_site = Counter(
            of_handlespaces.get(server.handlespace)
            if of_handlespaces
            else site_at(sites.networks, server.address)
            for server in expected
        )
        least = {  # 0.28 of 25 is 7, and floats make a little more of it
            name: max(self.min_in, math.ceil((self.min_share or 0) * of_site[name] - 1e-9))
            for name in names_in_order
        }
        back = self.spill_back
        if back is None and self.spill_at is not None:
            back = 0.75 * self.spill_at
        networks = {name: sites.networks[name] for name in names_in_order}
        return SiteRules(
            names_in_order, networks, least, self.spill_at, back, self.back_after_s, of_handlespaces
        )

    def site_problem(self, sites: Sites) -> tuple[str, str] | None:
        """The key of the pool that does not fit these sites, and why."""
        if self.order is None:
            return None
        expected = self.expect if isinstance(self.expect, tuple) else ()
        if (
            self.min_share is not None
            and sites.handlespaces
            and not all(each.handlespace for each in expected)
        ):
            return "min_share", "needs expect with a table for each handlespace, [pool.expect.NAME]"
        problem = sites.problem(self.order, self.accept, self.own_handlespaces)
        return ("order", problem) if problem is not None else None

    @property
    def protocol(self) -> Protocol:
        """The transport protocol that `service` is about; members of another are not shown."""
        return protocol_of(self.service)


class ZoneConfig(StrictModel):
    """One zone: a file `zones.d/<zone>.toml`."""

    zone: Annotated[str, AfterValidator(names.normal), Field(min_length=1)]
    """The name of the zone."""
    static: PathText
    """The master file with SOA, NS and all other fixed records; relative to this file."""
    ttl: Seconds = 1
    """TTL of live records in seconds."""
    negative_ttl: Seconds | None = None
    """How long "no such name" may be remembered, in seconds; as long as live records if not given."""
    pools: tuple[PoolConfig, ...] = Field(default=(), alias="pool")

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield what is wrong between the pools: a handle twice, an owner of SRV, HTTPS or SVCB
        records twice.

        Also what is wrong in one pool and can be told whatever else is: pydantic looks at no rule between the
        keys of a table that has a wrong one.
        """
        if "pools" in document:
            yield ("pools",), "unknown key; a pool is a table [[pool]]"
        seen: dict[tuple[str, str], int] = {}
        for pattern in (("pool", "*", "handle"), ("pool", "*", "handles", "*")):
            for location, handle in find(document, pattern):
                if not isinstance(handle, str) or not isinstance(location[1], int):
                    continue
                places = [(name, handle) for name in _handlespaces_in(document["pool"][location[1]])]
                first = next((seen[place] for place in places if place in seen), None)
                if first is not None:
                    words = f"the handle {handle!r} is already used by pool[{first}]"
                    yield location, f"{words}: a pool stands once in a zone"
                else:
                    seen |= dict.fromkeys(places, location[1])
        yield from _same_owner(document)
        yield from _same_svcb_owner(document)
        yield from _zone_in_name(document)
        for location, pool in find(document, ("pool", "*")):
            if isinstance(pool, dict):
                yield from ((location, problem) for problem in _between_keys(pool))

    @property
    def live_ttl_s(self) -> int:
        """TTL of live records in seconds."""
        return self.ttl

    @property
    def negative_ttl_s(self) -> int:
        """The largest TTL and MINIMUM of the SOA as served, in seconds."""
        return self.ttl if self.negative_ttl is None else self.negative_ttl


def _handlespaces_in(pool: Mapping[str, object]) -> list[str]:
    """The handlespaces that an unchecked [[pool]] names; an empty name if it names none."""
    several = pool.get("handlespaces")
    names_of_pool = several if isinstance(several, list) else [pool.get("handlespace", "")]
    return [str(name) for name in names_of_pool] or [""]


def _same_owner(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    owners: set[str] = set()
    for location, pool in find(document, ("pool", "*")):
        service, name = (
            (pool.get(key) for key in ("service", "name")) if isinstance(pool, dict) else (None, None)
        )
        if not isinstance(service, str) or not isinstance(name, str):
            continue
        owner = names.join(service.lower(), name.lower().rstrip("."))
        if owner in owners:
            yield (*location, "service"), f"another pool already has its SRV records at {owner!r}"
        owners.add(owner)


def _same_svcb_owner(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """SVCB and HTTPS records of two pools, or aliases of them, at one name."""
    owners: set[str] = set()
    for location, table in find(document, ("pool", "*", "svcb")):
        name = document["pool"][location[1]].get("name")
        try:
            svcb = SvcbConfig.model_validate(table)
        except ValidationError:
            continue
        if not isinstance(name, str):
            continue
        own = [svcb.owner(name.lower().rstrip("."))]
        for owner in dict.fromkeys([*own, svcb.owner("@")] if svcb.apex_alias else own):
            if owner in owners:
                yield location, f"another pool already has its {svcb.type} records at {owner!r}"
            owners.add(owner)


def _zone_in_name(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """A name is relative to the zone: with the zone in it, the zone would stand twice in the records."""
    zone = str(document.get("zone", "")).lower().rstrip(".")
    for location, name in find(document, ("pool", "*", "name")):
        text = str(name).lower().rstrip(".")
        if zone and (text == zone or text.endswith(f".{zone}")):
            short = text.removesuffix(zone).rstrip(".") or "@"
            yield location, f"is relative to the zone {zone}: write {short!r}"
