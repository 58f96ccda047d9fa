"""Who left a pool since its answers were built. What shows a change at once hides them before the next build.

Pure. What is shown instead of a pool's last member is the build's to say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pool_user import Member, PoolView

from rspdns.answers.building import changed_pools
from rspdns.answers.pool_state import PoolState
from rspdns.answers.snapshot import Snapshot

LARGE = 100
"""A pool of more members than this is looked through only when it became smaller."""


class Withdrawal(NamedTuple):
    """Targets of one site that lead nowhere any more: by the owner of the SRV records, and their label."""

    zone: str
    site: str
    targets: frozenset[tuple[str, str]]


def withdrawals(
    built: Snapshot, views: Mapping[str, PoolView], hidden: Collection[Withdrawal] = ()
) -> tuple[Withdrawal, ...]:
    """What `built` shows although these views no longer have it, or have it elsewhere.

    If a pool lost all its members, all answers are to change at one moment: nothing more is hidden before.
    What is `hidden` since an earlier change, and is still gone, stays hidden.
    """
    gone: dict[str, list[Member]] = {}
    is_one_empty = False
    for handle in changed_pools(built.views, views):
        left = _left(built.views.get(handle), views.get(handle))
        if left is None:
            is_one_empty = True
        elif left:
            gone[handle] = left
    if not gone:
        return ()
    found = []
    for zone in built.made_of:
        indexes = {index for handle in gone for index in zone.site_indexes.get(handle, ())}
        for index in indexes:
            site = built.zone_answers[zone.name].sites[index]
            targets = {
                (state.pool.owner, label)
                for state in site.states
                if state.live
                for handle in state.pool.config.shards
                for label in _labels(state, gone.get(handle, ()))
            }
            if targets:
                found.append(Withdrawal(zone.name, site.name, frozenset(targets)))
    return _still(found, hidden) if is_one_empty else tuple(found)


def _still(found: Collection[Withdrawal], hidden: Collection[Withdrawal]) -> tuple[Withdrawal, ...]:
    """What of these is hidden already."""
    targets = {(one.zone, one.site): one.targets for one in hidden}
    both = (one._replace(targets=one.targets & targets.get(one[:2], frozenset())) for one in found)
    return tuple(one for one in both if one.targets)


def _left(before: PoolView | None, after: PoolView | None) -> list[Member] | None:
    """The members of before that are no longer where they were; None if they all left."""
    if before is None or not before.members:
        return []
    if after is None or not after.known or not after.members:
        return None
    if len(before.members) > LARGE and len(after.members) >= len(before.members):
        return []
    same = set(map(id, after.members))
    if same.issuperset(map(id, before.members)):
        return []
    missing = [member for member in before.members if id(member) not in same]
    now = {member.identifier: member for member in after.members}
    return [
        member
        for member in missing
        if (known := now.get(member.identifier)) is None
        or known.transport_addresses != member.transport_addresses
    ]


def _labels(state: PoolState, gone: Collection[Member]) -> list[str]:
    """The labels under which a pool shows these members."""
    if not gone:
        return []
    if len(state.pool.config.shards) == 1:
        labels = (f"{member.identifier:08x}" for member in gone)
        return [label for label in labels if label in state.members]
    left = {member.identifier: member.transport_addresses for member in gone}
    return [
        label
        for label, member in state.members.items()
        if left.get(member.identifier) == member.transport_addresses
    ]
