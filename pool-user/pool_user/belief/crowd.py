"""A member leaves at once; a crowd is questioned (rule 3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set

from pool_user.belief.rules import CROWD_QUESTIONED_S, CROWD_WINDOW_S


class Crowd:
    """Holds members back that leave together with too many others.

    A crowd is two or more members, and more than half of the pool, gone within 500 ms. Members of it that are
    still shown stay until every settled registrar has confirmed in an answer, to a question asked since, that
    they are gone. They stay for 1 s at most. Then the truth is served.
    """

    def __init__(self) -> None:
        self._departures: deque[tuple[float, int]] = deque()
        self.held_since_s: dict[int, float] = {}
        self.gone = 0
        self.before = 0
        """The number of members before, and how many of them have left or would leave within 500 ms."""

    def hold(
        self, shown: Set[int], wanted: Set[int], confirmed: Callable[[int, float], bool], now: float
    ) -> set[int]:
        """Return the members of `shown` that stay although they are not `wanted` any more.

        `confirmed(identifier, since_s)` tells whether all registrars to be heard were heard since, and agree.
        """
        while self._departures and self._departures[0][0] <= now - CROWD_WINDOW_S:
            self._departures.popleft()
        leaving = shown - wanted
        departed = {identifier for _, identifier in self._departures} - wanted
        gone = leaving | departed
        self.gone, self.before = len(gone), len(shown | departed)
        questioned = self.gone >= 2 and 2 * self.gone > self.before
        for identifier in self.held_since_s.keys() - leaving:
            del self.held_since_s[identifier]
        for identifier in leaving - self.held_since_s.keys():
            if questioned:
                self.held_since_s[identifier] = now
            else:
                self._departures.append((now, identifier))
        for identifier, since_s in list(self.held_since_s.items()):
            if confirmed(identifier, since_s) or now >= since_s + CROWD_QUESTIONED_S:
                del self.held_since_s[identifier]
                self._departures.append((now, identifier))
        return set(self.held_since_s)

    @property
    def next_deadline_s(self) -> float | None:
        """When somebody held may leave without confirmation."""
        if not self.held_since_s:
            return None
        return min(self.held_since_s.values()) + CROWD_QUESTIONED_S
