"""What `rspdns status` tells, as plain values with the configuration's names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rspdns.belief import RegistrarState
from rspdns.pool_state import by_label
from rspdns.purge import Purger
from rspdns.snapshot import Snapshot
from rspdns.views import Member, OutMember, PoolView
from rspdns.weights import Weighted, effective_load
from rspdns.zone import Pool, Zone


def hexadecimal(identifier: int | None) -> str | None:
    """Return a PE or registrar identifier as it stands in target names."""
    return None if identifier is None else f"{identifier:08x}"


def registrars(states: Iterable[RegistrarState], now: float) -> list[dict[str, Any]]:
    """Every registrar, and how far it is believed."""
    return [
        {
            "number": state.number,
            "address": state.address,
            "standing": state.standing.value,
            "why": state.why,
            "identifier": hexadecimal(state.identifier),
            "since_s": _age(state.since_s, now),
            "follow": state.follow,
            "follow_problem": state.follow_problem or None,
            "round_trip_ms": None if state.round_trip_ms is None else round(state.round_trip_ms, 3),
        }
        for state in states
    ]


def zones(
    of_zones: Sequence[Zone], snapshot: Snapshot, views: Mapping[str, PoolView], now: float
) -> list[dict[str, Any]]:
    """Every zone with its pools, who is in and who is out, and why."""
    found = []
    for zone in of_zones:
        answers = snapshot.zone_answers.get(zone.name)
        memory = {
            owner: pool.weights
            for site in (answers.sites if answers else ())
            for owner, pool in site.memory.items()
        }
        pools = [
            _pool(
                pool,
                site.name,
                [views[handle] for handle in pool.config.shards if handle in views],
                weights,
                now,
            )
            for site in zone.sites
            for pool in site.pools
            for weights in (memory.get(pool.owner, {}),)
        ]
        found.append(
            {"zone": zone.name, "serial": answers.serial % 2**32 if answers else None, "pools": pools}
        )
    return found


def _pool(
    pool: Pool, name: str, of_pool: Sequence[PoolView], weights: Mapping[str, Weighted], now: float
) -> dict[str, Any]:
    labels = {id(one): label for label, one in by_label(pool, [view.members for view in of_pool]).items()}
    stale_since_s = [view.stale_since_s for view in of_pool if view.stale_since_s is not None]
    return {
        "handles": list(pool.config.shards),
        "name": name,
        "owner": pool.owner,
        "when_empty": pool.config.when_empty,
        "verify": pool.config.verify,
        "known": bool(of_pool) and all(view.known for view in of_pool),
        "stale_s": _age(min(stale_since_s, default=None), now),
        "answered_instead": _answered_instead(pool, of_pool),
        "members": [
            _member(view.handle, one, weights.get(labels.get(id(one), "")), now)
            for view in of_pool
            for one in view.members
            if one.protocol == pool.config.protocol
        ],
        "out": [
            *(_out(view.handle, one, now) for view in of_pool for one in view.out),
            *(
                _of_another_transport(view.handle, one, pool, now)
                for view in of_pool
                for one in view.members
                if one.protocol != pool.config.protocol
            ),
        ],
    }


def _answered_instead(pool: Pool, of_pool: Sequence[PoolView]) -> str | None:
    """What is answered since nobody lives, in words; None while somebody does or nothing is known."""
    known = [view for view in of_pool if view.known]
    protocol = pool.config.protocol
    if not known or any(one.protocol == protocol for view in known for one in view.members):
        return None
    if any(one.protocol == protocol for view in known for one in view.unreachable):
        return "the backend's own probe reaches nobody, which says more about its way: answering with all"
    recent = any(one.protocol == protocol for view in known for one in view.recent)
    what = {
        "last-good": "answering with who was in last"
        if recent
        else "nobody was in before: no records (NODATA)",
        "static": "answering with the zone file's records",
        "nodata": "answering without records (NODATA)",
        "servfail": "answering SERVFAIL",
    }[pool.config.when_empty]
    return f"nobody lives; {what} (when_empty = {pool.config.when_empty})"


def _member(handle: str, member: Member, weighted: Weighted | None, now: float) -> dict[str, Any]:
    load = effective_load(member.policy)
    return {
        "handle": handle,
        "identifier": hexadecimal(member.identifier),
        "addresses": [str(address) for address in member.addresses],
        "port": member.port,
        "protocol": member.protocol.name.lower(),
        "home_registrar": hexadecimal(member.home_registrar),
        "policy": type(member.policy).__name__,
        "load": None if load is None else round(load, 3),
        "priority": weighted.priority if weighted else None,
        "weight": weighted.weight if weighted else None,
        "since_s": _age(member.since_s, now),
        "stale": member.stale,
    }


def _out(handle: str, member: OutMember, now: float) -> dict[str, Any]:
    return {
        "handle": handle,
        "identifier": hexadecimal(member.identifier),
        "address": None if member.address is None else str(member.address),
        "port": member.port,
        "reason": member.reason,
        "since_s": _age(member.since_s, now),
    }


def _of_another_transport(handle: str, member: Member, pool: Pool, now: float) -> dict[str, Any]:
    """A member that this pool doesn't show: its handle is in use for several services, or by mistake."""
    registered = member.protocol.name.lower()
    return {
        "handle": handle,
        "identifier": hexadecimal(member.identifier),
        "address": str(member.addresses[0]) if member.addresses else None,
        "port": member.port,
        "reason": f"registered for {registered}; this pool's service is {pool.config.service}",
        "since_s": _age(member.since_s, now),
    }


def purging(purger: Purger) -> list[dict[str, Any]]:
    """Every control socket, and what was purged there."""
    return [
        {
            "control": control.path,
            "commands": control.counts.commands,
            "names": control.counts.names,
            "repeats": control.counts.repeats,
            "failures": control.counts.failures,
            "waiting": control.waiting,
            "problem": control.problem,
        }
        for control in purger.sockets
    ]


def endpoint(address: str, port: int) -> str:
    """An address and a port as people write them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def called(member: Mapping[str, Any]) -> str:
    """What people call a member or an absent one of the status: its address and port."""
    addresses = member.get("addresses") or [member["address"]]
    return "an unknown address" if addresses[0] is None else endpoint(addresses[0], member["port"])


def _age(since_s: float | None, now: float) -> float | None:
    return None if since_s is None else round(max(0.0, now - since_s), 3)
