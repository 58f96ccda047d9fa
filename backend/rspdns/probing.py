"""Which member to probe when, and what the outcomes mean: pure, no clock and no socket.

Each member is probed once a second, a failing or returning one twice as often; all probes together stay
below a rate, so that thousands of members whose registrars are lost make no storm. A member is
unreachable after two failures in a row and reachable again after two successes. It starts as reachable:
only what was tried can fall.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from rspdns.views import Member

INTERVAL_S = 1.0
CHANGING_INTERVAL_S = 0.5
FALL = 2
RISE = 2
MAX_PROBES_PER_S = 100
MAX_UNDER_WAY = 50


class Outcome(Enum):
    """Of one probe. UNKNOWN: there is no way to tell, and nothing follows from it."""

    ALIVE = "alive"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Target:
    """One member of one pool; with another address or port it is another target."""

    handle: str
    member: Member

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it the same target."""
        member = self.member
        return self.handle, member.identifier, member.addresses, member.port, member.protocol


@dataclass(slots=True)
class _Record:
    due_s: float
    reachable: bool = True
    streak: int = 0
    under_way: bool = False


class ProbeBook:
    """Keeps what is known about every target."""

    def __init__(self) -> None:
        self._records: dict[tuple[object, ...], _Record] = {}
        self._allowed_at_s = float("-inf")
        self.under_way = 0

    def due(self, targets: Iterable[Target], now: float) -> list[Target]:
        """Return who is to be probed now, those waiting longest first. Who is no target any more is
        forgotten."""
        by_key = {target.key: target for target in targets}
        for key in self._records.keys() - by_key.keys():
            self.under_way -= self._records.pop(key).under_way
        for key in by_key:
            self._records.setdefault(key, _Record(due_s=now))
        waiting = sorted(
            (record.due_s, number, key)
            for number, (key, record) in enumerate(self._records.items())
            if record.due_s <= now and not record.under_way
        )
        found = []
        for _, _, key in waiting[: self._room(now)]:
            self._records[key].under_way = True
            self.under_way += 1
            self._allowed_at_s += 1 / MAX_PROBES_PER_S
            found.append(by_key[key])
        return found

    def result(self, target: Target, outcome: Outcome, now: float) -> bool | None:
        """Take an outcome. Return whether the target is reachable when that is to be said (anew), else
        None."""
        record = self._records.get(target.key)
        if record is None or not record.under_way:
            return None
        record.under_way = False
        self.under_way -= 1
        changing = outcome is not Outcome.UNKNOWN and (outcome is Outcome.ALIVE) != record.reachable
        record.streak = record.streak + 1 if changing else 0
        record.due_s = now + (CHANGING_INTERVAL_S if changing else INTERVAL_S)
        if record.streak < (RISE if outcome is Outcome.ALIVE else FALL):
            return None
        record.streak, record.reachable = 0, outcome is Outcome.ALIVE
        return record.reachable

    def _room(self, now: float) -> int:
        """How many probes may start now: a tenth of a second's worth at once, no more."""
        self._allowed_at_s = max(self._allowed_at_s, now - 0.1)
        return max(0, min(MAX_UNDER_WAY - self.under_way, int((now - self._allowed_at_s) * MAX_PROBES_PER_S)))
