"""The offer of a cell to the upper handlespace: what the gateway registers for one pool. Pure.

| in the cell | above, policy Least Used with Degradation |
|---|---|
| mean load of the members, by their weights | the load |
| number of members, or the sum of registered weights | 1 / degradation: the capacity |
| capacity times (1 - load) | the free capacity, from which the upper name servers make the weight |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pool_user import Member, PoolView, effective_load
from rserpool.policies import LeastUsedDegradation, WeightedRandom, WeightedRandomDPF, WeightedRoundRobin

from rserpool import Protocol

MOVED_BY: Final = 0.05
"""A load that moves by this much, or a capacity by this part, is news above."""
_SMALLEST: Final = 1 / 0xFFFFFFFF
"""The smallest degradation above 0 on the wire."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The pool as one element. `members` are in; `port` is that of most of them."""

    protocol: Protocol
    port: int
    members: int
    capacity: float
    load: float

    @property
    def policy(self) -> LeastUsedDegradation:
        """The policy that carries both figures."""
        return LeastUsedDegradation(self.load, min(1.0, max(_SMALLEST, 1 / self.capacity)))

    def is_news(self, before: Offer | None) -> bool:
        """Whether the upper registrars should be told, `before` being what they were told last."""
        if before is None or (self.protocol, self.port) != (before.protocol, before.port):
            return True
        is_resized = abs(self.capacity - before.capacity) >= MOVED_BY * before.capacity
        return is_resized or abs(self.load - before.load) >= MOVED_BY


def offer_of(views: Sequence[PoolView], before: Offer | None = None) -> Offer | str:
    """Return the offer of a pool in these shards, or in words why there is none. `before` is the offer that
    stands: its port stays while no other one has more servers."""
    if not all(view.known for view in views):
        return "no registrar of the cell has told of the pool yet"
    if any(view.stale_since_s is not None for view in views):
        return "no registrar of the cell vouches for the pool"
    members = [member for view in views for member in view.members]
    if not members:
        return "no server of the cell is in the pool"
    counts = Counter((member.protocol, member.port) for member in members)
    standing = None if before is None else (before.protocol, before.port)
    protocol, port = max(counts, key=lambda each: (counts[each], each == standing))
    members = [member for member in members if member.protocol == protocol]
    units = [_units(member) for member in members]
    capacity = max(1.0, float(sum(units)))
    loads = [effective_load(member.policy) or 0.0 for member in members]
    used = sum(each * load for each, load in zip(units, loads, strict=True))
    return Offer(protocol, port, len(members), capacity, min(1.0, used / capacity))


def _units(member: Member) -> int:
    match member.policy:
        case WeightedRoundRobin() | WeightedRandom() | WeightedRandomDPF() as weighted:
            return weighted.weight
        case _:
            return 1
