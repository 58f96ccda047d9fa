"""DNS as it answers now: pages of pools, those with problems first, and the page of a server. Pure.

The live page shows this. The whole status of 1,000 pools is megabytes: a page holds a few pools, and of each
a few servers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated

from daemon_kit.addresses import endpoint
from pydantic import Field

from rspdns.answers.snapshot import Failure, Found, Snapshot
from rspdns.pdns.listening import DnsServer
from rspdns.status.model import (
    Count,
    EventStatus,
    MemberStatus,
    OutStatus,
    PoolStatus,
    ServerName,
    Status,
    ZoneStatus,
)

POOLS = 20
SERVERS = 20
"""The pools of a page, and the servers of a pool, in and out each, unless the request has other numbers."""
MOST_POOLS, MOST_SERVERS = 100, 1000
MOST_FILTER = 200
"""The longest filter, in characters."""

OverrideNumber = Annotated[int | None, Field(ge=0, description="of the override that holds for it")]
NumberOf = Callable[[str, str, int], int | None]
"""The number of the override that holds for the server of a handle at an address and port."""


@dataclass(slots=True)
class PoolOfZone(PoolStatus):
    """A pool, with the zone it is in."""

    zone: str
    serial: Count | None

    @classmethod
    def of(cls, zone: ZoneStatus, pool: PoolStatus) -> PoolOfZone:
        """A pool of this zone."""
        own = {field.name: getattr(pool, field.name) for field in fields(PoolStatus)}
        return cls(**own, zone=zone.zone, serial=zone.serial)


@dataclass(slots=True)
class AnswerNow:
    """The answer to one question."""

    name: str
    type: Annotated[str, Field(description="SRV, A, AAAA, NAPTR, HTTPS or SVCB")]
    ttl: Annotated[Count | None, Field(description="seconds; null without records")]
    records: Annotated[list[str], Field(description="the data of each record, without the final dot")]
    problem: Annotated[str | None, Field(description="why there is no record: SERVFAIL or NODATA, and why")]
    dig: Annotated[str, Field(description="the command that asks the same of PowerDNS, on this host")]


@dataclass(slots=True)
class AnsweredPool(PoolOfZone):
    """A pool with its answers. `members` and `out` are cut to the number asked for; those out by a fault come
    first."""

    answers: list[AnswerNow]
    members_in: Annotated[Count, Field(description="all members, those left out here included")]
    servers_out: Annotated[Count, Field(description="all servers that are out, as above")]
    weights: Annotated[dict[str, Count], Field(description="the sum of all weights, by SRV priority")]
    overridden: Annotated[
        dict[str, int], Field(description="number of the override that holds, by address and port")
    ]


@dataclass(slots=True)
class AnswersPage:
    """A page of pools, those with problems first."""

    pools_in_all: Count
    matching: Annotated[Count, Field(description="pools that the filter lets through")]
    offset: Annotated[Count, Field(description="matching pools before this page")]
    members_in: Annotated[Count, Field(description="of all pools")]
    missing: Annotated[Count, Field(description="of all pools")]
    planned: Annotated[Count, Field(description="servers out on purpose, of all pools")]
    pools: list[AnsweredPool]


@dataclass(slots=True)
class ServerOfPool:
    """A server in one of its pools: `member` if it is in, else `out`."""

    zone: str
    owner: str
    verify: Annotated[str | None, Field(description="how the backend itself probes it; null: it does not")]
    member: MemberStatus | None
    out: OutStatus | None
    listed_by: Annotated[list[Count], Field(description="numbers of the registrars that list it now")]
    override: OverrideNumber


@dataclass(slots=True)
class Server:
    """A server: its pools, and the latest events about it."""

    server: Annotated[str, Field(description="address and port")]
    name: ServerName
    pools: list[ServerOfPool]
    events: list[EventStatus]


@dataclass(frozen=True, slots=True)
class PageWish:
    """A page that somebody asks for: `offset` pools before it, `pools` on it, with `servers` of each."""

    words: tuple[str, ...] = ()
    offset: int = 0
    pools: int = POOLS
    servers: int = SERVERS


def answers_page(
    status: Status, snapshot: Snapshot, wish: PageWish, dns: DnsServer, number_of: NumberOf
) -> AnswersPage:
    """Return the page of the pools in which all words are found: in their names, servers or states."""
    pools = [(zone, pool) for zone in status.zones for pool in zone.pools]
    found = [(zone, pool) for zone, pool in pools if _matches(zone, pool, wish.words)]
    found.sort(key=lambda item: (_urgency(item[1]), item[1].owner))
    offset = min(wish.offset, max(0, len(found) - 1) // wish.pools * wish.pools)
    return AnswersPage(
        pools_in_all=len(pools),
        matching=len(found),
        offset=offset,
        members_in=sum(len(pool.members) for _, pool in pools),
        missing=sum(pool.missing for _, pool in pools),
        planned=sum(pool.planned for _, pool in pools),
        pools=[
            _answered(zone, pool, snapshot, wish, dns, number_of)
            for zone, pool in found[offset : offset + wish.pools]
        ],
    )


def server_page(
    status: Status, server: str, listed_by: Callable[[str, str], Sequence[int]], number_of: NumberOf
) -> Server | None:
    """Return the page of the server at this address and port; None if no pool knows it.

    `listed_by` gives the numbers of the registrars that list a PE identifier of a handle.
    """
    pools: list[ServerOfPool] = []
    name = None
    for zone in status.zones:
        for pool in zone.pools:
            for known in _servers(pool.members, pool.out):
                if server not in _endpoints(known):
                    continue
                address = server.rpartition(":")[0].strip("[]")
                listed = listed_by(known.handle, known.identifier) if known.identifier else ()
                pools.append(
                    ServerOfPool(
                        zone=zone.zone,
                        owner=pool.owner,
                        verify=pool.verify,
                        member=known if isinstance(known, MemberStatus) else None,
                        out=known if isinstance(known, OutStatus) else None,
                        listed_by=list(listed),
                        override=number_of(known.handle, address, known.port),
                    )
                )
                name = known.name or name
    events = [event for event in status.events if event.address == server]
    return Server(server, name, pools, events) if pools or events else None


def _urgency(pool: PoolStatus) -> int:
    """Return 0 for a pool that gives no server, 1 for one with another problem, 2 for one on which somebody
    works, 3 for the others."""
    if not pool.known or not pool.members:
        return 0
    if pool.missing or pool.stale_s is not None:
        return 1
    return 2 if pool.planned or any(member.share is not None for member in pool.members) else 3


def _answered(
    zone: ZoneStatus,
    pool: PoolStatus,
    snapshot: Snapshot,
    wish: PageWish,
    dns: DnsServer,
    number_of: NumberOf,
) -> AnsweredPool:
    weights: dict[str, int] = {}
    for member in pool.members:
        if member.priority is not None:
            weights[str(member.priority)] = weights.get(str(member.priority), 0) + (member.weight or 0)

    def is_sought(known: MemberStatus | OutStatus) -> bool:
        return bool(wish.words) and any(word in _text(known) for word in wish.words)

    members = sorted(pool.members, key=lambda member: (not is_sought(member), not member.stale))
    out = sorted(pool.out, key=lambda server: (not is_sought(server), not server.missing))
    shown = replace(pool, members=members[: wish.servers], out=out[: wish.servers])
    numbers = {
        where: number
        for known in _servers(shown.members, shown.out)
        for where in _endpoints(known)[:1]
        if (number := number_of(known.handle, _addresses(known)[0], known.port)) is not None
    }
    of_zone = PoolOfZone.of(zone, shown)
    return AnsweredPool(
        **{field.name: getattr(of_zone, field.name) for field in fields(PoolOfZone)},
        answers=list(_answers(zone.zone, pool, snapshot, dns)),
        members_in=len(members),
        servers_out=len(out),
        weights=weights,
        overridden=numbers,
    )


def _answers(zone: str, pool: PoolStatus, snapshot: Snapshot, dns: DnsServer) -> Iterator[AnswerNow]:
    """Yield the answer to SRV, and those to the other types that are more than "no such record"."""
    questions = [(pool.owner, "SRV"), *((pool.name, kind) for kind in ("A", "AAAA", "NAPTR"))]
    if pool.svcb_owner is not None:
        questions += [(pool.svcb_owner, kind) for kind in ("HTTPS", "SVCB")]
    for name, kind in questions:
        found = snapshot.lookup(name, kind, zone)
        dig = f"{dns.dig} {shlex.quote(name)} {kind}"
        if isinstance(found, Found):
            records = [record.content for record in found.records]
            yield AnswerNow(name, kind, min(record.ttl for record in found.records), records, None, dig)
        elif isinstance(found, Failure):
            yield AnswerNow(name, kind, None, [], f"SERVFAIL: {found.reason}", dig)
        elif kind == "SRV":
            problem = "NODATA: the name has no record of this type" if found.exists else "NXDOMAIN"
            yield AnswerNow(name, kind, None, [], problem, dig)


def _matches(zone: ZoneStatus, pool: PoolStatus, words: Sequence[str]) -> bool:
    if not words:
        return True
    text = " ".join((pool.owner, pool.name, zone.zone, *pool.handles)).lower()
    rest = [word for word in words if word not in text]
    servers = [_text(known) for known in _servers(pool.members, pool.out)] if rest else []
    return all(any(word in server for server in servers) for word in rest)


def _text(known: MemberStatus | OutStatus) -> str:
    """Return all by which a filter finds the server, its state included, in lower case."""
    if isinstance(known, MemberStatus):
        states = ("stale" if known.stale else "", "overridden" if known.share is not None else "")
    else:
        states = ("missing" if known.missing else "out", str(known.cause))
    return " ".join((known.name or "", *_endpoints(known), known.identifier or "", *states)).lower()


def _servers(members: Iterable[MemberStatus], out: Iterable[OutStatus]) -> Iterator[MemberStatus | OutStatus]:
    yield from members
    yield from out


def _addresses(known: MemberStatus | OutStatus) -> list[str]:
    if isinstance(known, MemberStatus):
        return known.addresses
    return [] if known.address is None else [known.address]


def _endpoints(known: MemberStatus | OutStatus) -> list[str]:
    return [endpoint(address, known.port) for address in _addresses(known)]


def page_wish(query: Mapping[str, str]) -> PageWish:
    """Read the query of a request. Raises ValueError that says what is wrong."""
    text = query.get("filter", "")
    if len(text) > MOST_FILTER:
        raise ValueError(f"filter: {MOST_FILTER} characters at most")
    return PageWish(
        tuple(text.lower().split()),
        _number(query, "offset", 0, 0, 10**9),
        _number(query, "pools", POOLS, 1, MOST_POOLS),
        _number(query, "servers", SERVERS, 0, MOST_SERVERS),
    )


def _number(query: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    text = query.get(key, str(default))
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or not least <= int(text) <= most:
        raise ValueError(f"{key}: a whole number from {least} to {most}")
    return int(text)
