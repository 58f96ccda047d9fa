"""The names that a resolver must forget, and when. Pure: no clock, no socket.

Each name is flushed twice. The first flush comes within `JOIN_S` of the change, together with all that
changes meanwhile. A look-up that is under way at that moment puts the old answer back into the cache, and
PowerDNS itself may have such an answer until its last purge, after 50 ms: so the second flush comes
`AGAIN_S` later. A resolver that can't be told is tried again after growing pauses.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable

JOIN_S = 0.01
"""Time between a change and the first flush."""
WEIGHTS_S = 5.0
"""Time between a change of weights alone and the first flush: loads change all the time, and a TTL that never
comes to its end would be of no use."""
AGAIN_S = 0.1
"""Time between the two flushes of a name."""
SPACING_S = 0.05
"""The least time between two flushes."""
MOST_NAMES = 100
"""If more names wait, their zones are flushed as a whole: a resolver takes each name as a command."""
FEW_NAMES = 10
"""If a flush of more names fails, their zones are flushed as a whole: a resolver far away may never do the
names in time."""
FIRST_PAUSE_S, MOST_PAUSE_S = 0.25, 10.0
"""Pause after a failed flush: the first one, and after doubling; jitter takes up to half of it."""
_USUAL = re.compile(r"[A-Za-z0-9_-]+")
_EARLY_S = 0.003
"""Names that are due within this time go along."""


class FlushQueue:
    """The queue of one resolver. `zones` gives the names of the zones that are served.

    A name with `$` behind it is a zone, with all below it.
    """

    def __init__(
        self, zones: Callable[[], Collection[str]], draw: Callable[[], float] = random.random
    ) -> None:
        self._zones = zones
        self._draw = draw
        self._first: dict[str, float] = {}
        self._again: dict[str, float] = {}
        self._under_way: dict[str, bool] = {}
        """The names of the flush of now, and whether it is their first."""
        self._free_at_s = float("-inf")
        self.failures = 0
        """The flushes that failed since the last one that did not."""

    def __len__(self) -> int:
        return len(self._first)

    def add(self, names: Iterable[str], now: float, within_s: float = JOIN_S) -> None:
        """These names changed, and are flushed within this time."""
        due_s = now + within_s
        for name in map(tellable, names):
            self._first[name] = min(due_s, self._first.get(name, due_s))
        if len(self._first) > MOST_NAMES:
            self._first = self._joined(self._first)

    @property
    def next_due_s(self) -> float | None:
        """When the next flush is due; None: nothing waits."""
        due = [min(queue.values()) for queue in (self._first, self._again) if queue]
        return max(min(due), self._free_at_s) if due else None

    def take(self, now: float) -> tuple[str, ...]:
        """Return the names to flush now; `done` or `failed` follows. Empty: none is due.

        Zones come first, then the names of services: their records say who lives."""
        if now < self._free_at_s:
            return ()
        names = self._due(self._first, now)
        names |= {name: False for name in self._due(self._again, now) if name not in names}
        for name in names:
            self._first.pop(name, None)
            self._again.pop(name, None)
        self._under_way = names
        return tuple(sorted(names, key=lambda name: (not name.endswith("$"), not name.startswith("_"), name)))

    def done(self, now: float) -> None:
        """The resolver forgot the names that were taken last."""
        self.failures = 0
        self._free_at_s = now + SPACING_S
        for name, is_first in self._under_way.items():
            if is_first and name not in self._first:
                self._again[name] = now + AGAIN_S
        self._under_way = {}

    def failed(self, now: float) -> None:
        """The names that were taken last are not known to be forgotten: they are flushed anew."""
        self.failures += 1
        longest_s = min(MOST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 16))
        self._free_at_s = now + longest_s * (0.5 + self._draw() / 2)
        names, self._under_way = self._under_way, {}
        self.add(self._joined(dict.fromkeys(names, now)) if len(names) > FEW_NAMES else names, now)

    @staticmethod
    def _due(queue: dict[str, float], now: float) -> dict[str, bool]:
        return {name: True for name, due_s in queue.items() if due_s <= now + _EARLY_S}

    def _joined(self, waiting: dict[str, float]) -> dict[str, float]:
        """The zones of the names, each due when the first of its names is. Names in no zone are left out:
        they are not served any more."""
        zones = frozenset(self._zones())
        joined: dict[str, float] = {}
        for name, due_s in waiting.items():
            zone = _zone_of(name.removesuffix("$"), zones)
            if zone is not None:
                joined[f"{zone}$"] = min(due_s, joined.get(f"{zone}$", due_s))
        return joined


def tellable(name: str) -> str:
    """Return the name, or the first zone above its labels that hold other than letters, digits, - and _: no
    resolver's command needs to know how to quote it."""
    labels = name.removesuffix("$").split(".")
    unusual = [place for place, label in enumerate(labels) if not _USUAL.fullmatch(label)]
    return f"{'.'.join(labels[unusual[-1] + 1 :])}$" if unusual else name


def _zone_of(name: str, zones: Collection[str]) -> str | None:
    while name:
        if name in zones:
            return name
        name = name.partition(".")[2]
    return None
