"""The state that a pool's answers are made from: its members or their substitutes, and their weights.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pool_user import Member, PoolView, Weighted, weights

from rspdns.zones.zone import Pool

WEIGHTS_HOLD_S = 1.0
"""Weights move at most this often, in seconds: each move is a purge. Members come in and go out at once."""


class PoolState(NamedTuple):
    """One pool at one moment. `members` and `weights` by target label.

    `live` tells members that are in from the last good ones of an empty pool. With none, `failure` says
    why the answer is SERVFAIL, `static` that the zone file's records stand in; without both it is NODATA.
    `weighed_at_s` (monotonic) is when the weights moved last, `rebuild_at_s` when time alone changes the
    state.
    """

    pool: Pool
    members: Mapping[str, Member] = MappingProxyType({})
    weights: Mapping[str, Weighted] = MappingProxyType({})
    live: bool = False
    static: bool = False
    failure: str = ""
    weighed_at_s: float | None = None
    rebuild_at_s: float = float("inf")

    def gives_the_records_of(self, other: PoolState) -> bool:
        """Whether the records made from both are the same, chance apart: a load that moves no weight has no
        part in them."""
        return (
            (self.live, self.static, self.failure) == (other.live, other.static, other.failure)
            and self.pool == other.pool
            and self.weights == other.weights
            and self.members.keys() == other.members.keys()
            and all(other.has(label, member) for label, member in self.members.items())
        )

    def has(self, label: str, member: Member) -> bool:
        """Whether the target with this label leads to the member's addresses and port."""
        known = self.members.get(label)
        return known is not None and (
            known is member or known.transport_addresses == member.transport_addresses
        )


def state_of(
    pool: Pool, views: Sequence[PoolView], before: PoolState | None, now: float, max_stale_s: float
) -> PoolState:
    """The state of a pool, `views` being those of its handles and `before` its state in the build before."""
    usable, stale_at_s = [], float("inf")
    for view in views:
        until_s = float("inf") if view.stale_since_s is None else view.stale_since_s + max_stale_s
        if view.known and now < until_s:
            usable.append(view)
            stale_at_s = min(stale_at_s, until_s)
    if not usable:
        return PoolState(pool, failure=_why_unknown(pool, views))
    members = by_label(pool, [view.members for view in usable])
    if members:
        return _weighed(pool, members, before, now, stale_at_s, live=True)
    if len(usable) < len(views):  # members may well live in the shard that nobody tells of
        return PoolState(pool, failure=_why_unknown(pool, [view for view in views if view not in usable]))
    unreachable = by_label(pool, [view.unreachable for view in usable])
    if unreachable:  # by the backend's own probe: a fault on its way must not empty a pool
        return _weighed(pool, unreachable, before, now, stale_at_s)
    match pool.config.when_empty:
        case "last-good":
            recent = by_label(pool, [view.recent for view in usable])
            return _weighed(pool, recent, before, now, stale_at_s)
        case "static":
            return PoolState(pool, static=True, rebuild_at_s=stale_at_s)
        case "servfail":
            return PoolState(pool, failure=f"the pool {_handles(pool)} is empty", rebuild_at_s=stale_at_s)
        case "nodata":
            return PoolState(pool, rebuild_at_s=stale_at_s)


def _why_unknown(pool: Pool, views: Sequence[PoolView]) -> str:
    if any(view.known for view in views):
        return f"for too long no registrar could vouch for the pool {_handles(pool)}"
    return f"no registrar has told of the pool {_handles(pool)} yet"


def _handles(pool: Pool) -> str:
    return ", ".join(pool.config.shards)


def by_label(pool: Pool, shards: Sequence[Sequence[Member]]) -> dict[str, Member]:
    """The members by target label, those of another transport protocol left out.

    PE identifiers are unique within a handle only: where two shards have the same, the later gets a number.
    """
    found: dict[str, Member] = {}
    protocol = pool.config.protocol
    for number, members in enumerate(shards, start=1):
        for member in members:
            if member.protocol == protocol:
                label = f"{member.identifier:08x}"
                found[label if label not in found else f"{label}-{number}"] = member
    return found


def _held(fresh: Weighted, old: Weighted | None) -> Weighted:
    """The weight of before, unless the priority is another one."""
    is_same = old is not None and (old.priority, old.standby) == (fresh.priority, fresh.standby)
    return old if old is not None and is_same else fresh


def _weighed(
    pool: Pool,
    members: Mapping[str, Member],
    before: PoolState | None,
    now: float,
    rebuild_at_s: float,
    *,
    live: bool = False,
) -> PoolState:
    """The state with the weights of its members, those of before while they may not move yet."""
    slow_start_s = pool.config.slow_start_s
    old: Mapping[str, Weighted] = before.weights if before is not None else {}
    old_s = before.weighed_at_s if before is not None else None
    fresh = weights.weigh(members, old, now, slow_start_s)
    weighed_at_s = now
    if old_s is not None and fresh == old:
        weighed_at_s = old_s
    elif old_s is not None and fresh.keys() == old.keys() and now - old_s < WEIGHTS_HOLD_S:
        fresh, weighed_at_s = dict(old), old_s
        rebuild_at_s = min(rebuild_at_s, weighed_at_s + WEIGHTS_HOLD_S)
    elif old_s is not None and now - old_s < WEIGHTS_HOLD_S:
        fresh = {label: _held(weighted, old.get(label)) for label, weighted in fresh.items()}
        weighed_at_s, rebuild_at_s = old_s, min(rebuild_at_s, old_s + WEIGHTS_HOLD_S)
    if weights.still_growing(members, now, slow_start_s):
        rebuild_at_s = min(rebuild_at_s, now + WEIGHTS_HOLD_S)
    return PoolState(pool, members, fresh, live, False, "", weighed_at_s, rebuild_at_s)
