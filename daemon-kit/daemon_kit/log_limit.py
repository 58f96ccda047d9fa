"""How many lines of a log one source may cause, so that no stranger fills a disk. Pure: no clock.

Lines are of a kind (what happened, in which part) and have a source (an address, a pool, a registrar). Within
each `WINDOW_S`, so many lines of one kind about one source are written, and so many of one kind in all; the
others are counted, and their number is told when the time is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

WINDOW_S = 10.0
MOST_OF_A_SOURCE = 30
MOST_OF_A_KIND = 500
MOST_SOURCES = 10_000
"""Remembered within one window; lines about further sources count for their kind alone."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """So many lines of a kind were left out within `seconds`; `sources` is about how many sources."""

    part: str
    event: str
    lines: int
    sources: int
    seconds: float


@dataclass(slots=True)
class _Kind:
    began_s: float
    lines: int = 0
    left_out: int = 0
    of_source: dict[str, int] = field(default_factory=dict)
    silenced: set[str] = field(default_factory=set)


class LogLimit:
    """Decides which lines are written. `now` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def admits(self, part: str, event: str, source: str, now: float) -> bool:
        """Whether a line is written; to be called once for each line, after `over()`."""
        kind = self._kinds.get((part, event))
        if kind is None:
            kind = self._kinds[part, event] = _Kind(now)
        of_source = kind.of_source.get(source, 0)
        if of_source < MOST_OF_A_SOURCE and kind.lines < MOST_OF_A_KIND:
            kind.lines += 1
            if of_source or len(kind.of_source) < MOST_SOURCES:
                kind.of_source[source] = of_source + 1
            return True
        kind.left_out += 1
        if len(kind.silenced) < MOST_SOURCES:
            kind.silenced.add(source)
        return False

    def over(self, now: float) -> list[LeftOut]:
        """Begin anew for each kind whose window is over; return what was left out of it."""
        found = []
        for (part, event), kind in list(self._kinds.items()):
            if now >= kind.began_s + WINDOW_S:
                del self._kinds[part, event]
                if kind.left_out:
                    seconds = round(now - kind.began_s, 1)
                    found.append(LeftOut(part, event, kind.left_out, len(kind.silenced), seconds))
        return found

    @property
    def next_over_s(self) -> float | None:
        """When there is something to tell of lines that were left out; None while none were."""
        began_s = [kind.began_s for kind in self._kinds.values() if kind.left_out]
        return min(began_s) + WINDOW_S if began_s else None
