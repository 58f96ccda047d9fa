"""Names that left a signed zone go on existing, with nothing at them, as long as PowerDNS may remember them.

PowerDNS keeps what a name had for some seconds (its query cache, `query-cache-ttl`), but asks each time for
the names around one. Were the name no more among these, "no such type" would come with the proof of another
thing, and be bogus.
"""

from __future__ import annotations

from collections.abc import Iterable

from rspdns.snapshot import Snapshot, different_parts

LINGER_S = 3.0
"""After its last look-up: longer than the 2 s for which PowerDNS keeps an answer (`pdns-config`)."""
MAX_DEPARTED = 20_000
"""With more, those that left first are forgotten."""


class Departed:
    """Which names left lately. `now` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}  # who ends first comes first

    def note(self, old: Snapshot, new: Snapshot, signed: Iterable[str], now: float) -> None:
        """The answers changed from `old` to `new`; only the `signed` zones matter."""
        for zone in signed:
            before, after = old.zone_answers.get(zone), new.zone_answers.get(zone)
            if before is None or after is None or before is after:
                continue
            parts, _ = different_parts(before, after)
            for part in parts:
                for name in part.keys() - new.nodes.keys():
                    self._keep(name, now)
        while len(self._until_s) > MAX_DEPARTED:
            del self._until_s[next(iter(self._until_s))]

    def looked_up(self, name: str, now: float) -> bool:
        """Whether a name without a node still exists; if so, it does for a while from now on."""
        until_s = self._until_s.get(name)
        if until_s is None or until_s < now:
            return False
        self._keep(name, now)
        return True

    def below(self, zone: str, now: float) -> frozenset[str]:
        """Those of a zone; some may have come back."""
        while self._until_s and self._until_s[first := next(iter(self._until_s))] < now:
            del self._until_s[first]
        return frozenset(name for name in self._until_s if name.endswith(f".{zone}"))

    def _keep(self, name: str, now: float) -> None:
        self._until_s.pop(name, None)
        self._until_s[name] = now + LINGER_S
