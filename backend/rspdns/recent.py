"""What changed lately in signed zones, and PowerDNS may remember otherwise, so that its denials are true.

PowerDNS keeps what a name had for some seconds (its query cache, `query-cache-ttl`), or until a purge. To
deny a type it asks anew for the names around one, and, after a purge, for the types there. So a name that
left goes on existing, with nothing at it, as long as it may be remembered; and a type that just came is not
among those of a proof.
"""

from __future__ import annotations

from collections.abc import Iterable

from rspdns.snapshot import Node, Snapshot, different_parts

LINGER_S = 3.0
"""After its last look-up: longer than the 2 s for which PowerDNS keeps an answer (`pdns-config`)."""
NEW_FOR_S = 3.0
"""After a change: by then it was purged, or PowerDNS has forgotten what was before."""
MOST_NAMES = 20_000
"""Of each kind; with more, the oldest are forgotten."""


class RecentChanges:
    """`now` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._departed: dict[str, float] = {}
        """Until when a name exists; who ends first comes first. So it is with `_came`."""
        self._came: dict[str, tuple[float, frozenset[str]]] = {}
        self._by_zone: dict[str, frozenset[str]] = {}
        """The departed as `departed()` gave them; emptied when one comes or goes."""

    def note(self, old: Snapshot, new: Snapshot, signed: Iterable[str], now: float) -> None:
        """The answers changed from `old` to `new`; only the `signed` zones matter."""
        for zone in signed:
            before, after = old.zone_answers.get(zone), new.zone_answers.get(zone)
            if before is None or after is None or before is after:
                continue
            old_parts, new_parts = different_parts(before, after)
            for part in old_parts:
                for name in part.keys() - new.nodes.keys():
                    self._keep(name, now)
            for part in new_parts:
                for name, node in part.items():
                    self._note_types(name, old.nodes.get(name), node, now)
        while len(self._departed) > MOST_NAMES:
            self._forget(next(iter(self._departed)))
        while self._came and (len(self._came) > MOST_NAMES or self._came[next(iter(self._came))][0] < now):
            del self._came[next(iter(self._came))]

    def exists(self, name: str, now: float) -> bool:
        """Whether a name without a node still exists; it is looked up: if so, for a while from now."""
        until_s = self._departed.get(name)
        if until_s is None or until_s < now:
            return False
        self._keep(name, now)
        return True

    def departed(self, zone: str, now: float) -> frozenset[str]:
        """The names of a zone that still exist; some may have come back."""
        while self._departed and self._departed[first := next(iter(self._departed))] < now:
            self._forget(first)
        found = self._by_zone.get(zone)
        if found is None:
            found = frozenset(name for name in self._departed if name.endswith(f".{zone}"))
            self._by_zone[zone] = found
        return found

    def came(self, name: str, now: float) -> frozenset[str]:
        """The types that a name has not had for long."""
        until_s, types = self._came.get(name, (now, frozenset[str]()))
        return types if now < until_s else frozenset()

    def _keep(self, name: str, now: float) -> None:
        if self._departed.pop(name, None) is None:
            self._by_zone.clear()
        self._departed[name] = now + LINGER_S

    def _forget(self, name: str) -> None:
        del self._departed[name]
        self._by_zone.clear()

    def _note_types(self, name: str, before: Node | None, after: Node, now: float) -> None:
        if before is after or (before is None and name not in self._departed):
            return
        types = {record.type for record in after.records}
        if before is not None:
            types.difference_update(record.type for record in before.records)
        if types:
            types |= self.came(name, now)
            self._came.pop(name, None)
            self._came[name] = now + NEW_FOR_S, frozenset(types)
