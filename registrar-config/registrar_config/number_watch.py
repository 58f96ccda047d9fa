"""Notices that another registrar was given the same number. Sans-IO.

Its sentinel is then in the pool of ours, and stays; a sentinel of a former life goes within seconds.
"""

from collections.abc import Collection
from typing import Final

SHORTEST_S: Final = 30.0


class NumberWatch:
    """Looks at who else is in the sentinel's pool. `life_s`: how long a registration lives unrenewed."""

    def __init__(self, life_s: float) -> None:
        self._limit_s = max(SHORTEST_S, 2 * life_s)
        self._since_s: dict[int, float] = {}
        self._is_told = False

    def look(self, now: float, others: Collection[int]) -> int | None:
        """Take in the identifiers listed beside ours; return, once, that of another registrar's sentinel."""
        self._since_s = {each: self._since_s.get(each, now) for each in others}
        for each, since_s in self._since_s.items():
            if not self._is_told and now - since_s >= self._limit_s:
                self._is_told = True
                return each
        return None
