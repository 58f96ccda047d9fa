"""The changes of a pool that are still to be told, and when that is due. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rspdns.next_change import WAIT_S

REPEAT_S, MOST_REPEAT_S = 5.0, 60.0
"""Time until what failed is repeated: the first time, and after doubling."""
MOST_CHANGES = 1000


@dataclass
class PendingChanges:
    """The changes that no successful run of the command was told of. Pure."""

    at_most_every_s: float
    pool: dict[str, Any] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)
    missed: bool = False
    """Whether there were changes that are not among `changes`."""
    why: str | None = "start"
    """Why the command is to run: start, change, or repeat; None: it need not."""
    due_s: float = 0.0
    """The time before which it does not run."""
    _failures: int = 0

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take what the backend tells."""
        before, self.pool = self.pool, answer["pool"]
        is_other = bool(before) and members_of(before) != members_of(self.pool)
        if answer["changes"] or is_other:
            self.why = self.why or "change"
        # Changes were lost with a former life of the backend: that matters if the members are others now.
        self.missed |= is_other and not answer["changes"]
        self.missed |= answer["missed"] and (is_other or bool(answer["changes"]))
        self.changes += answer["changes"]
        self.missed |= len(self.changes) > MOST_CHANGES
        del self.changes[:-MOST_CHANGES]

    def wait_s(self, now: float) -> float:
        """Return how long to wait for changes; 0: the command is to run now.

        It never runs for a pool that no registrar has told of: its members are not known.
        """
        if self.why is None or not self.pool["known"]:
            return WAIT_S
        return min(WAIT_S, max(0.0, self.due_s - now))

    def document(self, host: str) -> dict[str, Any]:
        """Return what the command reads."""
        return {
            "host": host,
            "why": self.why,
            "missed": self.missed,
            "changes": self.changes,
            "pool": self.pool,
        }

    def ran(self, began_s: float, now: float, *, is_done: bool) -> None:
        """The command ended; if it failed it runs again, with the same changes and those of the meantime."""
        self.due_s = began_s + self.at_most_every_s
        if is_done:
            self.changes, self.missed, self.why, self._failures = [], False, None, 0
            return
        self.why = "repeat"
        self.due_s = max(self.due_s, now + min(MOST_REPEAT_S, REPEAT_S * 2**self._failures))
        self._failures = min(self._failures + 1, 10)


def members_of(pool: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    """Return who is in: handle, identifier, addresses and port of each."""
    return {
        (member["handle"], member["identifier"], tuple(member["addresses"]), member["port"])
        for member in pool["members"]
    }
