"""How the members of each pool are probed, as the zones say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pool_user import Plan, PoolProbing

from rspdns.zones.configuration import PoolConfig
from rspdns.zones.zone import Zone


def probing_by_handle(zones: Iterable[Zone]) -> Mapping[str, PoolProbing]:
    """The probing of every pool handle of the zones (a handle in several is verified in the same way)."""
    return {
        handle: PoolProbing(plan_of(pool.config), pool.config.shards[0])
        for zone in zones
        for site in zone.sites
        for pool in site.pools
        for handle in pool.config.shards
    }


def plan_of(pool: PoolConfig) -> Plan:
    """The plan for one pool: as `verify` says, or for when its registrars are lost."""
    if pool.verify is None:
        is_sip = pool.service in ("_sip._udp", "_sips._udp")
        return Plan("sip-options" if is_sip else "connect")
    return Plan(
        pool.verify,
        pool.verify_interval_ms / 1000,
        pool.verify_timeout_ms / 1000,
        pool.verify_fall,
        pool.verify_rise,
        verified=True,
        report=pool.report_unreachable,
    )
