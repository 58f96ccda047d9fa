"""Makes the status out of what the parts of the backend know. Pure.

Values made here are right by their types; nothing is validated, since each scrape makes all of them anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from pool_user import (
    Cause,
    Code,
    Departure,
    Member,
    OutMember,
    PoolView,
    RegistrarView,
    Weighted,
    effective_load,
)

from rspdns.answers.pool_state import PoolState, by_label
from rspdns.answers.site_order import SiteState
from rspdns.answers.snapshot import Snapshot
from rspdns.fastpath import FastPath
from rspdns.missing import Missing, ServerNames, missing
from rspdns.pdns.purge import Purger
from rspdns.status.model import (
    FastPathInterfaceStatus,
    FastPathNameStatus,
    FastPathStatus,
    MemberStatus,
    OutStatus,
    PdnsStatus,
    PoolHandlespaceStatus,
    PoolStatus,
    RefusedStatus,
    RegistrarStatus,
    SiteStatus,
    ZoneStatus,
)
from rspdns.zones.zone import Pool, Zone


def hexadecimal(identifier: int | None) -> str | None:
    """Return a PE or registrar identifier as it stands in target names."""
    return None if identifier is None else f"{identifier:08x}"


_ServerAddress = tuple[IPv4Address | IPv6Address | None, int]
"""The address and port of a server; without the address if it told none."""
SHOWN_S = 60.0
"""How long a server that left is shown although its pool does not lack it."""
MOST_FAST_NAMES = 100
"""Told by name; the daemon tells of all."""


def fastpath(link: FastPath | None) -> FastPathStatus | None:
    """The answers from the kernel."""
    if link is None:
        return None
    daemon = link.daemon
    most = sorted(
        link.asked.values(), key=lambda asked: asked.answered + asked.passed + asked.failed, reverse=True
    )
    return FastPathStatus(
        socket=link.path,
        problem=link.problem,
        names=link.names,
        refused=link.refused,
        mode=daemon.mode if daemon else None,
        interfaces=[
            FastPathInterfaceStatus(interface.name, interface.attached, interface.problem or None)
            for interface in (daemon.interfaces if daemon else ())
        ],
        decisions=dict(daemon.decisions) if daemon else {},
        asked=[
            FastPathNameStatus(
                asked.name, asked.type, asked.variants, asked.answered, asked.passed, asked.failed
            )
            for asked in most[:MOST_FAST_NAMES]
        ],
    )


def registrars(states: Iterable[RegistrarView], now: float) -> list[RegistrarStatus]:
    """Every registrar, and how far it is believed."""
    return [
        RegistrarStatus(
            number=state.number,
            address=state.address,
            standing=state.standing,
            why=state.why,
            identifier=hexadecimal(state.identifier),
            since_s=_age(state.since_s, now),
            follow=state.follow,
            follow_problem=state.follow_problem or None,
            handlespace=state.handlespace or None,
            round_trip_ms=None if state.round_trip_ms is None else round(state.round_trip_ms, 3),
        )
        for state in states
    ]


@dataclass(frozen=True, slots=True)
class Known:
    """The names of servers and registrars: `registrars` gives number and address by identifier, for each
    pool."""

    names: ServerNames = field(default_factory=lambda: ServerNames(()))
    registrars: Callable[[str], Mapping[str, str]] = lambda pool: {}


NOTHING_ELSE = Known()


def zones(
    of_zones: Sequence[Zone],
    snapshot: Snapshot,
    views: Mapping[str, PoolView],
    now: float,
    known: Known = NOTHING_ELSE,
    *,
    refused: Callable[[str], Mapping[Code, int]] = lambda handle: {},
    is_wanted: Callable[[Pool], bool] = lambda pool: True,
) -> list[ZoneStatus]:
    """Every zone with its pools: the servers that are in, and those that are out or missing, with reasons.

    `refused` gives how many registrations of a handle were refused before anything was stored, by reason.
    Pools that are not wanted are left out.
    """
    statuses = []
    for zone in of_zones:
        answers = snapshot.zone_answers.get(zone.name)
        shown = {
            state.pool.owner: state for site in (answers.sites if answers else ()) for state in site.states
        }
        pools = [
            _pool(
                pool,
                site.name,
                [views[handle] for handle in pool.config.shards if handle in views],
                shown.get(pool.owner) or PoolState(pool),
                now,
                known,
                _refused(pool, refused),
            )
            for site in zone.sites
            for pool in site.pools
            if is_wanted(pool)
        ]
        statuses.append(ZoneStatus(zone.name, answers.serial % 2**32 if answers else None, pools))
    return statuses


def _refused(pool: Pool, refused: Callable[[str], Mapping[Code, int]]) -> RefusedStatus:
    of_pool = [refused(handle) for handle in pool.config.shards]
    return RefusedStatus(
        *(
            sum(counts.get(kind, 0) for counts in of_pool)
            for kind in (Code.FOREIGN, Code.TOO_MANY, Code.UNPROVEN)
        )
    )


def _pool(
    pool: Pool,
    name: str,
    of_pool: Sequence[PoolView],
    state: PoolState,
    now: float,
    known: Known,
    refused: RefusedStatus,
) -> PoolStatus:
    labels = {
        id(member): label
        for label, member in by_label(pool, [(view.handle, view.members) for view in of_pool]).items()
    }
    stale_since_s = [view.stale_since_s for view in of_pool if view.stale_since_s is not None]
    members = [
        member for view in of_pool for member in view.members if member.protocol == pool.config.protocol
    ]
    lacked = missing(pool.config, members, of_pool, now)
    is_union = len(pool.config.own_handlespaces) > 1
    status = PoolStatus(
        handles=list(pool.config.shards),
        name=name,
        owner=pool.owner,
        svcb_owner=pool.svcb_owner,
        when_empty=pool.config.when_empty,
        verify=pool.config.verify,
        known=bool(of_pool) and (all(view.known for view in of_pool) or (bool(members) and is_union)),
        stale_s=_age(min(stale_since_s, default=None), now),
        answered_instead=_answered_instead(pool, of_pool),
        expected=lacked.expected,
        missing=lacked.count,
        planned=len(lacked.planned),
        members=[
            _member(view.handle, member, state.weights.get(labels.get(id(member), "")), pool, now, known)
            for view in of_pool
            for member in view.members
            if member.protocol == pool.config.protocol
        ],
        out=[
            *_outside(pool, of_pool, lacked, now, known),
            *(
                _of_another_transport(view.handle, member, pool, now, known)
                for view in of_pool
                for member in view.members
                if member.protocol != pool.config.protocol
            ),
        ],
        refused=refused,
        sites=[_site(pool, name, of_site, now) for name, of_site in state.sites.items()],
        handlespaces=[_part(pool, handlespace, of_pool, now) for handlespace in pool.config.own_handlespaces],
    )
    if status.handlespaces:
        servers: list[MemberStatus | OutStatus] = [*status.members, *status.out]
        for server in servers:
            server.handlespace = server.handle.partition("/")[0]
    return status


def _part(pool: Pool, name: str, of_pool: Sequence[PoolView], now: float) -> PoolHandlespaceStatus:
    views = [view for view in of_pool if view.handle.partition("/")[0] == name]
    members = (member for view in views for member in view.members)
    return PoolHandlespaceStatus(
        name,
        known=bool(views) and all(view.known for view in views),
        members=sum(member.protocol == pool.config.protocol for member in members),
        stale_s=_age(min((view.stale_since_s for view in views if view.stale_since_s), default=None), now),
    )


def _site(pool: Pool, name: str, state: SiteState, now: float) -> SiteStatus:
    back_s = None
    if not state.is_enough and state.enough_since_s is not None and pool.sites is not None:
        back_s = round(max(0.0, state.enough_since_s + pool.sites.back_after_s - now), 3)
    load = None if state.load is None else round(state.load, 3)
    return SiteStatus(name, state.rank, state.members, state.is_enough, state.is_spilling, load, back_s)


def _outside(
    pool: Pool, of_pool: Sequence[PoolView], lacked: Missing, now: float, known: Known
) -> Iterator[OutStatus]:
    """Those that registrars list although they are out, that left lately, that are missing, and that a person
    took out."""
    absent: dict[tuple[str, _ServerAddress], Departure] = {
        (handle, departure.member.server_address): departure for handle, departure in lacked.departed
    }
    planned = {(handle, departure.member.server_address) for handle, departure in lacked.planned}
    for view in of_pool:
        departed: dict[_ServerAddress, Departure] = {
            departure.member.server_address: departure for departure in view.departures
        }
        for out in view.out:
            is_missing = absent.pop((view.handle, (out.address, out.port)), None) is not None
            departed_there = departed.pop((out.address, out.port), None)
            yield _out(view.handle, out, departed_there, now, known, is_missing=is_missing)
        for endpoint, departure in departed.items():
            is_shown = now - departure.left_s < SHOWN_S or (view.handle, endpoint) in planned
            if (view.handle, endpoint) not in absent and is_shown:
                yield _departed(view.handle, departure, now, known, is_missing=False)
    yield from (
        _departed(handle, departure, now, known, is_missing=True) for (handle, _), departure in absent.items()
    )
    cause = Cause(Code.NEVER_SEEN)
    yield from (
        _out_status(handle, None, server, cause, None, now, known, is_missing=True)
        for handle, server in lacked.never
    )


def _answered_instead(pool: Pool, of_pool: Sequence[PoolView]) -> str | None:
    """The answer that stands in while no member lives, in words; None while a member lives or nothing is
    known."""
    known = [view for view in of_pool if view.known]
    protocol = pool.config.protocol
    if not known or any(member.protocol == protocol for view in known for member in view.members):
        return None
    if any(member.protocol == protocol for view in known for member in view.unreachable):
        return "the probe reaches no member, so the fault is probably its own: answering with all members"
    recent = any(member.protocol == protocol for view in known for member in view.recent)
    what = {
        "last-good": "answering with who was in last"
        if recent
        else "nobody was in before: no records (NODATA)",
        "static": "answering with the zone file's records",
        "nodata": "answering without records (NODATA)",
        "servfail": "answering SERVFAIL",
    }[pool.config.when_empty]
    return f"no server is alive; {what} (when_empty = {pool.config.when_empty})"


def _member(
    handle: str, member: Member, weighted: Weighted | None, pool: Pool, now: float, known: Known
) -> MemberStatus:
    load = effective_load(member.policy)
    return MemberStatus(
        handle=handle,
        name=known.names.of(handle, member),
        identifier=f"{member.identifier:08x}",
        addresses=[str(address) for address in member.addresses],
        port=member.port,
        protocol=member.protocol.name.lower(),
        home_registrar=f"{member.home_registrar:08x}",
        policy=type(member.policy).__name__,
        load=None if load is None else round(load, 3),
        priority=weighted.priority if weighted else None,
        weight=weighted.weight if weighted else None,
        since_s=round(max(0.0, now - member.since_s), 3),
        stale=member.stale,
        site=None if pool.sites is None else pool.sites.site_of(member),
        share=member.share,
    )


def _out(
    handle: str, out: OutMember, departure: Departure | None, now: float, known: Known, *, is_missing: bool
) -> OutStatus:
    """A server that a registrar lists, or that was in, and that is out."""
    cause = out.cause
    if departure is not None:
        is_told_better = departure.cause.code in (cause.code, Code.DRAINED)
        cause = departure.cause if is_told_better else cause
        cause = cause.explained(departure.member.home_registrar, known.registrars(handle))
    planned_s = departure.planned_s(now) if departure else None
    if departure is None and cause.code.is_planned:
        planned_s = math.inf
    server = out.address, out.port
    return _out_status(
        handle,
        out.identifier,
        server,
        cause,
        out.since_s,
        now,
        known,
        is_missing=is_missing,
        planned_s=planned_s,
    )


def _departed(handle: str, departure: Departure, now: float, known: Known, *, is_missing: bool) -> OutStatus:
    """A server that was in and that no registrar lists any more."""
    member = departure.member
    cause = departure.cause.explained(member.home_registrar, known.registrars(handle))
    return _out_status(
        handle,
        member.identifier,
        member.server_address,
        cause,
        departure.left_s,
        now,
        known,
        is_missing=is_missing,
        planned_s=departure.planned_s(now),
    )


def _out_status(
    handle: str,
    identifier: int | None,
    server: _ServerAddress,
    cause: Cause,
    since_s: float | None,
    now: float,
    known: Known,
    *,
    is_missing: bool = False,
    planned_s: float | None = None,
) -> OutStatus:
    address, port = server
    return OutStatus(
        handle=handle,
        name=None if address is None else known.names.at(handle, (address, port)),
        identifier=hexadecimal(identifier),
        address=None if address is None else str(address),
        port=port,
        reason=cause.words,
        cause=cause.code,
        look_at=cause.look_at(str(address)),
        missing=is_missing,
        planned=planned_s is not None,
        planned_s=None if planned_s is None or math.isinf(planned_s) else round(planned_s, 3),
        since_s=_age(since_s, now),
    )


def _of_another_transport(handle: str, member: Member, pool: Pool, now: float, known: Known) -> OutStatus:
    """A member that this pool doesn't show: its handle is in use for several services, or by mistake."""
    registered = member.protocol.name.lower()
    cause = Cause(Code.OTHER_TRANSPORT, detail=registered, service=pool.config.service)
    return _out_status(handle, member.identifier, member.server_address, cause, member.since_s, now, known)


def purging(purger: Purger) -> list[PdnsStatus]:
    """Every control socket, and what was purged there."""
    return [
        PdnsStatus(
            control=control.path,
            commands=control.counts.commands,
            names=control.counts.names,
            repeats=control.counts.repeats,
            failures=control.counts.failures,
            waiting=control.waiting,
            problem=control.problem,
        )
        for control in purger.sockets
    ]


def _age(since_s: float | None, now: float) -> float | None:
    return None if since_s is None else round(max(0.0, now - since_s), 3)
