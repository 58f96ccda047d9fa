"""Which members that are in now would leave if other zone files were read. Pure.

It compares what `rspdns status` tells with a configuration that is not served yet. So `rspdns check`, which
asks the running backend, and the backend itself before a reload come to the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from pool_user import accepted, spoken_for

from rserpool import PoolElement
from rspdns.status.model import MemberStatus, OutStatus, PoolStatus, ZoneStatus
from rspdns.zones.configuration import PoolConfig
from rspdns.zones.zone import Pool, Zone

NAMED = 8
"""Members that a sentence names; of more it says how many."""
Listed = Mapping[str, Sequence[PoolElement]]
"""The pool elements that registrars list, of handles that the running backend does not know."""


@dataclass(frozen=True, slots=True)
class PoolLoss:
    """The loss of a pool: `going` are the members it would lose, in words with the reasons; `staying` are
    left.

    `key` is the key of the pool's table that is the cause; empty where the whole pool is not configured any
    more, and then `zone_is_gone` says whether its zone is not, either.
    """

    zone: str
    owner: str
    going: tuple[str, ...]
    staying: int
    key: str
    zone_is_gone: bool = False

    @property
    def is_refused(self) -> bool:
        """Whether it takes a reload with `--force`: the pool would lose its last member.

        Not when the whole zone went: nobody removes a zone's file by a slip of the pen.
        """
        return not self.staying and not self.zone_is_gone

    @property
    def words(self) -> str:
        """The sentence for the administrator."""
        total = len(self.going) + self.staying
        going = "the only member that is" if total == 1 else f"all {total} members that are"
        if self.staying:
            going = f"{len(self.going)} of the {total} members that are"
        named = "; ".join(self.going[:NAMED])
        more = len(self.going) - NAMED
        return f"{self.owner}: {going} in now would leave: {named}" + (f"; {more} more" if more > 0 else "")


def losses(
    served: Iterable[ZoneStatus], zones: Iterable[Zone], listed: Listed | None = None
) -> list[PoolLoss]:
    """Every pool of the zones `told` by a status that would lose members if `zones` were served instead."""
    served = list(served)
    wanted = {zone.name: zone for zone in zones}
    pools = {pool.owner: pool for zone in wanted.values() for site in zone.sites for pool in site.pools}
    known = _known(served)
    lost = []
    for zone in served:
        for before in zone.pools:
            if before.members:
                after = pools.get(before.owner)
                lost.append(_loss(zone.zone, before, after, wanted, known, listed or {}))
    return [loss for loss in lost if loss.going]


def _loss(
    zone: str,
    before: PoolStatus,
    after: Pool | None,
    wanted: Mapping[str, Zone],
    known: Mapping[str, Sequence[MemberStatus | OutStatus]],
    listed: Listed,
) -> PoolLoss:
    if after is None:
        why = "its pool is not configured any more"
        going = tuple(f"{member.called}: {why}" for member in before.members)
        return PoolLoss(zone, before.owner, going, 0, "", zone not in wanted)
    reasons = {_key(member): _why(member, after.config) for member in before.members}
    going = tuple(
        f"{member.called}: {reason[1]}"
        for member in before.members
        if (reason := reasons[_key(member)]) is not None
    )
    staying = {key for key, reason in reasons.items() if reason is None}
    staying |= _coming(after.config, known, listed) - reasons.keys()
    key = next((reason[0] for reason in reasons.values() if reason is not None), "")
    return PoolLoss(zone, before.owner, going, len(staying), key)


def _why(member: MemberStatus | OutStatus, pool: PoolConfig) -> tuple[str, str] | None:
    """Why a member that is in would not be: the key that is the cause, and words. None when it stays."""
    if member.handle not in pool.shards:
        words = f"it is registered under the handle {member.handle}, not {' or '.join(pool.shards)}"
        return ("handle" if pool.handles is None else "handles"), words
    if isinstance(member, MemberStatus):
        if member.protocol != pool.protocol.name.lower():
            return "service", f"it serves {member.protocol}, and the service is {pool.service}"
        addresses = member.addresses
    else:
        addresses = [] if member.address is None else [member.address]
    if not accepted([ip_address(address) for address in addresses], pool.accept):
        return "accept", "it is not in the accept networks"
    return None


def _coming(
    pool: PoolConfig, known: Mapping[str, Sequence[MemberStatus | OutStatus]], listed: Listed
) -> set[tuple[object, ...]]:
    """Those who would be in by the new configuration, whatever they are now."""
    coming: set[tuple[object, ...]] = set()
    for handle in pool.shards:
        for member in known.get(handle, ()):
            if _why(member, pool) is None:
                coming.add(_key(member))
        for element in listed.get(handle, ()):
            transport = spoken_for(element, pool.remote_agents).user_transport
            may_come = transport.port and transport.protocol is pool.protocol
            if may_come and accepted(transport.addresses, pool.accept):
                coming.add((handle, f"{element.identifier:08x}"))
    return coming


def _known(served: Iterable[ZoneStatus]) -> dict[str, list[MemberStatus | OutStatus]]:
    """By handle, its members that are in, and those that `accept` refuses: they may come in."""
    known: dict[str, list[MemberStatus | OutStatus]] = {}
    for zone in served:
        for pool in zone.pools:
            for handle in pool.handles:
                known.setdefault(handle, [])
            for member in pool.members:
                known[member.handle].append(member)
            for out in pool.out:
                if out.cause.is_refusal and out.address is not None:
                    known[out.handle].append(out)
    return known


def _key(member: MemberStatus | OutStatus) -> tuple[object, ...]:
    return member.handle, member.identifier
