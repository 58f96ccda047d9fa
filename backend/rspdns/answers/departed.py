"""The addresses of targets that left lately: still answered while an SRV answer may name these targets.

PowerDNS makes an SRV answer of several look-ups: the SRV records, then the addresses of each target. A member
may leave in between, and for some milliseconds PowerDNS's query cache may hold SRV records from before (a
look-up under way puts them back after the first purge). So the SRV records cease to name a target at once,
while its own name is answered for `KEPT_S` longer. Then no answer names a target without an address.

Signed zones need none of this: their look-ups say which moment they are about (`rspdns.pdns.domain_ids`).
"""

from __future__ import annotations

from collections.abc import Collection

from rspdns.answers.snapshot import Snapshot, moved_sites
from rspdns.rrset import Node

KEPT_S = 1.0
"""The last purge of a change comes 50 ms after it, on a busy machine later."""


class Departed:
    """The nodes of the names that left. `now` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str | None, str], tuple[Node, float]] = {}
        """By zone and name: the node, and until when it is answered. The oldest first."""

    def __len__(self) -> int:
        return len(self._nodes)

    def note(self, old: Snapshot, new: Snapshot, signed: Collection[str], now: float) -> None:
        """The answers changed from `old` to `new`."""
        while self._nodes and self._nodes[first := next(iter(self._nodes))][1] < now:
            del self._nodes[first]
        for name, after in new.zone_answers.items():
            before = old.zone_answers.get(name)
            if before is None or before is after or name in signed or len(before.sites) != len(after.sites):
                continue
            for was, is_now in moved_sites(before.sites, after.sites):
                for left in was.nodes.keys() - is_now.nodes.keys():
                    self._nodes.pop((name, left), None)
                    self._nodes[name, left] = was.nodes[left], now + KEPT_S

    def node(self, zone: str | None, name: str, now: float) -> Node | None:
        """The node of a name that left its zone within `KEPT_S`."""
        node, until_s = self._nodes.get((zone, name), (None, now))
        return node if now <= until_s else None
