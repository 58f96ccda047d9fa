"""Makes the status out of what the parts of the backend know. Pure.

Values made here are right by their types; nothing is validated, since each scrape makes all of them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from daemon_kit.finding import Finding
from pool_user import (
    Cause,
    Code,
    Member,
    OutMember,
    PoolView,
    RegistrarView,
    Weighted,
    effective_load,
)

from rspdns.answers.pool_state import by_label
from rspdns.answers.snapshot import Snapshot
from rspdns.fastpath import FastPath
from rspdns.pdns.purge import Purger
from rspdns.roster import Missing, Seen, TransportAddress, missing, transport_address_of
from rspdns.status.model import (
    FastPathInterfaceStatus,
    FastPathNameStatus,
    FastPathStatus,
    MemberStatus,
    OutStatus,
    PdnsStatus,
    PoolStatus,
    RefusedStatus,
    RegistrarStatus,
    ZoneStatus,
)
from rspdns.zones.zone import Pool, Zone


def hexadecimal(identifier: int | None) -> str | None:
    """Return a PE or registrar identifier as it stands in target names."""
    return None if identifier is None else f"{identifier:08x}"


MOST_FAST_NAMES = 100
"""Told by name; the daemon tells of all."""


def fastpath(link: FastPath | None) -> FastPathStatus | None:
    """The answers from the kernel."""
    if link is None:
        return None
    daemon = link.daemon
    most = sorted(link.asked.values(), key=lambda one: one.answered + one.passed + one.failed, reverse=True)
    return FastPathStatus(
        socket=link.path,
        problem=link.problem,
        names=link.names,
        refused=link.refused,
        mode=daemon.mode if daemon else None,
        interfaces=[
            FastPathInterfaceStatus(one.name, one.attached, one.problem or None)
            for one in (daemon.interfaces if daemon else ())
        ],
        decisions=dict(daemon.decisions) if daemon else {},
        asked=[
            FastPathNameStatus(one.name, one.type, one.variants, one.answered, one.passed, one.failed)
            for one in most[:MOST_FAST_NAMES]
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
            round_trip_ms=None if state.round_trip_ms is None else round(state.round_trip_ms, 3),
        )
        for state in states
    ]


@dataclass(frozen=True, slots=True)
class Known:
    """The facts about servers beside the views.

    `absent` is the roster's, `at_s` the wall clock; `name_at(handle, at)` is what people call a server,
    `failed(handle, identifier)` the finding of the last probe of a member, if it failed.
    """

    absent: Mapping[str, Mapping[TransportAddress, Seen]] = field(default_factory=dict)
    at_s: float = 0.0
    name_at: Callable[[str, TransportAddress], str | None] = lambda handle, at: None
    failed: Callable[[str, int], Finding | None] = lambda handle, identifier: None


NOTHING_ELSE = Known()


def zones(
    of_zones: Sequence[Zone],
    snapshot: Snapshot,
    views: Mapping[str, PoolView],
    now: float,
    known: Known = NOTHING_ELSE,
    *,
    refused: Callable[[str], Mapping[Code, int]] = lambda handle: {},
) -> list[ZoneStatus]:
    """Every zone with its pools: the servers that are in, and those that are out or missing, with reasons.

    `refused` gives how many registrations of a handle were refused before anything was stored, by reason.
    """
    found = []
    for zone in of_zones:
        answers = snapshot.zone_answers.get(zone.name)
        shown = {
            state.pool.owner: state.weights
            for site in (answers.sites if answers else ())
            for state in site.states
        }
        pools = [
            _pool(
                pool,
                site.name,
                [views[handle] for handle in pool.config.shards if handle in views],
                weights,
                now,
                known,
                _refused(pool, refused),
            )
            for site in zone.sites
            for pool in site.pools
            for weights in (shown.get(pool.owner, {}),)
        ]
        found.append(ZoneStatus(zone.name, answers.serial % 2**32 if answers else None, pools))
    return found


def _refused(pool: Pool, refused: Callable[[str], Mapping[Code, int]]) -> RefusedStatus:
    of_pool = [refused(handle) for handle in pool.config.shards]
    return RefusedStatus(
        *(sum(one.get(kind, 0) for one in of_pool) for kind in (Code.FOREIGN, Code.TOO_MANY, Code.UNPROVEN))
    )


def _pool(
    pool: Pool,
    name: str,
    of_pool: Sequence[PoolView],
    weights: Mapping[str, Weighted],
    now: float,
    known: Known,
    refused: RefusedStatus,
) -> PoolStatus:
    labels = {id(one): label for label, one in by_label(pool, [view.members for view in of_pool]).items()}
    stale_since_s = [view.stale_since_s for view in of_pool if view.stale_since_s is not None]
    members = [one for view in of_pool for one in view.members if one.protocol == pool.config.protocol]
    lacked = missing(pool.config, members, known.absent, known.at_s)
    return PoolStatus(
        handles=list(pool.config.shards),
        name=name,
        owner=pool.owner,
        when_empty=pool.config.when_empty,
        verify=pool.config.verify,
        known=bool(of_pool) and all(view.known for view in of_pool),
        stale_s=_age(min(stale_since_s, default=None), now),
        answered_instead=_answered_instead(pool, of_pool),
        expected=lacked.expected,
        missing=lacked.count,
        members=[
            _member(view.handle, one, weights.get(labels.get(id(one), "")), now, known)
            for view in of_pool
            for one in view.members
            if one.protocol == pool.config.protocol
        ],
        out=[
            *_outside(pool, of_pool, lacked, now, known),
            *(
                _of_another_transport(view.handle, one, pool, now, known)
                for view in of_pool
                for one in view.members
                if one.protocol != pool.config.protocol
            ),
        ],
        refused=refused,
    )


def _outside(
    pool: Pool, of_pool: Sequence[PoolView], lacked: Missing, now: float, known: Known
) -> Iterator[OutStatus]:
    """Those that registrars list although they are out, that left lately, and that are missing."""
    absent = {(handle, one.transport_address): one for handle, one in lacked.seen}
    shown = set()
    for view in of_pool:
        for one in view.out:
            at = (one.address, one.port) if one.address is not None else None
            seen = known.absent.get(view.handle, {}).get(at) if at is not None else None
            is_missing = absent.pop((view.handle, at), None) is not None if at is not None else False
            if is_missing and at in shown:
                continue
            shown.add(at)
            yield _out(view.handle, one, seen, now, known, is_missing=is_missing)
    yield from (_missing(handle, one, known) for (handle, _), one in absent.items())
    for at in lacked.never:
        handle = pool.config.shards[0]
        yield _told_out(
            handle, None, at, Cause(Code.NEVER_SEEN), None, known.name_at(handle, at), is_missing=True
        )


def _answered_instead(pool: Pool, of_pool: Sequence[PoolView]) -> str | None:
    """The answer that stands in while no member lives, in words; None while a member lives or nothing is
    known."""
    known = [view for view in of_pool if view.known]
    protocol = pool.config.protocol
    if not known or any(one.protocol == protocol for view in known for one in view.members):
        return None
    if any(one.protocol == protocol for view in known for one in view.unreachable):
        return "the probe reaches no member, so the fault is probably its own: answering with all members"
    recent = any(one.protocol == protocol for view in known for one in view.recent)
    what = {
        "last-good": "answering with who was in last"
        if recent
        else "nobody was in before: no records (NODATA)",
        "static": "answering with the zone file's records",
        "nodata": "answering without records (NODATA)",
        "servfail": "answering SERVFAIL",
    }[pool.config.when_empty]
    return f"no server is alive; {what} (when_empty = {pool.config.when_empty})"


def _member(handle: str, member: Member, weighted: Weighted | None, now: float, known: Known) -> MemberStatus:
    load = effective_load(member.policy)
    return MemberStatus(
        handle=handle,
        name=known.name_at(handle, transport_address_of(member)),
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
    )


def _out(
    handle: str, member: OutMember, seen: Seen | None, now: float, known: Known, *, is_missing: bool
) -> OutStatus:
    at = None if member.address is None else (member.address, member.port)
    name = None if at is None else known.name_at(handle, at)
    cause = member.cause
    if cause.code.is_unreached:
        cause = replace(cause, finding=known.failed(handle, member.identifier))
    if seen is not None and seen.cause.code is cause.code:
        cause = seen.cause
    since_s = _age(member.since_s, now)
    where = at if at is not None else (None, member.port)
    return _told_out(handle, member.identifier, where, cause, since_s, name, is_missing=is_missing)


def _missing(handle: str, seen: Seen, known: Known) -> OutStatus:
    """A server that was in and that no registrar lists any more."""
    since_s = None if seen.left_s is None else round(max(0.0, known.at_s - seen.left_s), 3)
    name = known.name_at(handle, seen.transport_address)
    return _told_out(
        handle, seen.identifier, seen.transport_address, seen.cause, since_s, name, is_missing=True
    )


def _told_out(
    handle: str,
    identifier: int | None,
    at: TransportAddress | tuple[None, int],
    cause: Cause,
    since_s: float | None,
    name: str | None,
    *,
    is_missing: bool = False,
) -> OutStatus:
    address, port = at
    return OutStatus(
        handle=handle,
        name=name,
        identifier=hexadecimal(identifier),
        address=None if address is None else str(address),
        port=port,
        reason=cause.words,
        cause=cause.code,
        look_at=cause.look_at(str(address)),
        missing=is_missing,
        since_s=since_s,
    )


def _of_another_transport(handle: str, member: Member, pool: Pool, now: float, known: Known) -> OutStatus:
    """A member that this pool doesn't show: its handle is in use for several services, or by mistake."""
    registered = member.protocol.name.lower()
    cause = Cause(Code.OTHER_TRANSPORT, detail=registered, service=pool.config.service)
    at = transport_address_of(member)
    name = known.name_at(handle, at)
    return _told_out(handle, member.identifier, at, cause, _age(member.since_s, now), name)


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
