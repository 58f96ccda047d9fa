"""From a change to the moment its names were purged at every PowerDNS. Pure: no clock, no socket."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

MAX_WAITING = 64
"""Changes that wait for their purge at once; the oldest of more is given up."""


@dataclass(slots=True)
class _Change:
    events: tuple[int, ...]
    published_s: float
    missing: dict[str, set[str]]
    """By control socket, the names that are not yet known to be purged there."""


class Convergence:
    """Waits, for every change, until each of the control sockets `paths` has purged its names once."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._changes: deque[_Change] = deque()

    def published(self, events: Sequence[int], names: Collection[str], now: float) -> tuple[int, ...]:
        """The answers at `names` changed because of these events. Return those that are done already."""
        if not events or not names:
            return ()
        if not self._paths:
            return tuple(events)
        while len(self._changes) >= MAX_WAITING:
            self._changes.popleft()
        self._changes.append(_Change(tuple(events), now, {path: set(names) for path in self._paths}))
        return ()

    def purged(self, path: str, names: Collection[str] | None, taken_s: float) -> tuple[int, ...]:
        """A command taken at `taken_s` purged `names` at this socket (None: nothing is cached there).

        Return the events all of whose names are purged everywhere now.
        """
        if not self._changes:
            return ()
        done: list[int] = []
        purged = frozenset(names or ())
        for change in self._changes:
            missing = change.missing.get(path)
            if missing is None or change.published_s > taken_s:
                continue
            left = set() if names is None else missing - purged  # costs what is missing, not what was purged
            if left:
                change.missing[path] = left
            else:
                del change.missing[path]
            if not change.missing:
                done += change.events
        if done:
            self._changes = deque(change for change in self._changes if change.missing)
        return tuple(done)
