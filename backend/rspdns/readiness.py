"""Whether this name server answers a zone rightly now: `/ready/ZONE`, for whatever announces its address.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from daemon_kit.durations import duration
from pool_user import PoolView

from rspdns.missing import missing
from rspdns.zones.zone import Pool

MOST_CAUSES = 10


def not_ready(pools: Iterable[Pool], views: Mapping[str, PoolView], now: float) -> list[str]:
    """Why the answers for these pools of a zone may be wrong, at most MOST_CAUSES reasons; none: it is ready.

    A pool without members is a reason only if servers are missing from it: a new pool is right to be empty,
    and so is one whose servers a person took out.
    """
    causes: list[str] = []
    for pool in pools:
        cause = _cause(pool, [views.get(handle) or PoolView(handle) for handle in pool.config.shards], now)
        if cause is not None:
            causes.append(f"{pool.owner}: {cause}")
            if len(causes) == MOST_CAUSES:
                break
    return causes


def _cause(pool: Pool, of_pool: list[PoolView], now: float) -> str | None:
    parts = [
        _why_unvouched([view for view in of_pool if not name or view.handle.startswith(f"{name}/")], now)
        for name in pool.config.own_handlespaces or ("",)
    ]
    if all(parts):  # a handlespace that is lost costs its own members
        return parts[0]
    protocol = pool.config.protocol
    members = [member for view in of_pool for member in view.members if member.protocol == protocol]
    if not members and (count := missing(pool.config, members, of_pool, now).count):
        return f"no server is in, {count} should be"
    return None


def _why_unvouched(views: list[PoolView], now: float) -> str | None:
    """Why no registrar of a handlespace vouches for its part of a pool; None: one does."""
    if not all(view.known for view in views):
        return "no registrar has told of it yet"
    stale_since_s = min(
        (view.stale_since_s for view in views if view.stale_since_s is not None), default=None
    )
    if stale_since_s is None:
        return None
    return f"no registrar can be believed for {duration(max(0.0, now - stale_since_s))}"
