"""The numbers PowerDNS knows zones by (`domain_id`); those of signed zones name a moment as well.

To deny a name or a type, PowerDNS asks several times: for the name, for those above it and their wildcards,
for the names around it, for the types at these. Some of it its query cache answers. Members come and go
meanwhile, and a proof of two moments is none. But every question begins with the SOA of its zone, whose
`domain_id` comes with all further requests of that question, and the query cache keeps answers by it too. So
whenever a name or a type comes to or leaves a signed zone, its SOA gets another number, and every request is
answered as of the moment that its number stands for.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from rspdns.answers.change import Change, ZoneChange
from rspdns.answers.snapshot import LIMIT, Snapshot, ZoneAnswers, ZoneNumbers, zone_id
from rspdns.rrset import Node

KEPT_S = 5.0
"""A moment is kept for longer than PowerDNS keeps an SOA: 2 s (`query-cache-ttl`), in whole seconds."""
MOST_COMPARED = 2000
"""Names of a zone that are compared one by one when its files were read again: some 10 ms. 100,000 take a
second."""
_MOMENTS = 4096
"""As many numbers are a zone's, in turn: none comes again while PowerDNS has answers of it."""
_ROWS = LIMIT // _MOMENTS
"""The number of rows; each has `_MOMENTS` numbers, above those of `rspdns.answers.snapshot`."""


@dataclass(frozen=True, slots=True)
class _Past:
    snapshot: Snapshot
    began: ZoneAnswers
    until_s: float


class DomainIds:
    """Which number each zone has now, and what the earlier ones stand for. `now` is monotonic, in seconds.

    A signed zone has a row of numbers to itself, and the number that another zone is listed by is not in it.
    """

    def __init__(self) -> None:
        self._present: dict[str, int] = {}
        """The present number of each signed zone."""
        self._began: dict[str, ZoneAnswers] = {}
        """The signed zones as their present numbers began."""
        self._rows: dict[int, str] = {}
        self._past: dict[int, _Past] = {}
        """The oldest first."""
        self._listed = ZoneNumbers()

    def of(self, zone: str) -> int:
        """The number of a zone as it is now."""
        present = self._present.get(zone)
        return present if present is not None else self._listed.of(zone)

    def zone_name(self, number: object) -> str | None:
        """The zone that a number stands for, at whichever moment; None for a number of no zone."""
        if not isinstance(number, int):
            return None
        return self._rows.get(number // _MOMENTS) or self._listed.zone(number)

    def past(self, number: object, now: float) -> Snapshot | None:
        """The answers that a past number stood for, as they were last; None if it is not a past number."""
        past = self._past.get(number) if isinstance(number, int) else None
        return past.snapshot if past is not None and now <= past.until_s else None

    def zone(self, number: object, current: Snapshot, now: float) -> ZoneAnswers | None:
        """The zone of a number; as it is now, unless the number is one of the past.

        Its names and their types are right; the rest may be as it was when the number began: the very same
        zone is returned for as long as it is one moment's.
        """
        name = self.zone_name(number)
        past = self._past.get(number) if isinstance(number, int) else None
        if past is not None and now <= past.until_s:
            return past.began
        answers = current.zone_answers.get(name) if name is not None else None
        return answers and self._began.get(answers.name, answers)

    def note(self, change: Change, signed: Iterable[str], now: float) -> list[str]:
        """Return the `signed` zones that have a new number after this change."""
        old, new = change.before, change.after
        self._listed = new.numbers
        while self._past and self._past[first := next(iter(self._past))].until_s < now:
            del self._past[first]
        moved = []
        names = sorted(signed)
        for name in self._began.keys() - names:
            del self._began[name]
        for name in names:
            before, after = old.zone_answers.get(name), new.zone_answers.get(name)
            if after is None:
                self._began.pop(name, None)
                continue
            if name not in self._present:
                self._add(name)
            elif before is not None and name in self._began:
                if name not in change.zones or not _differ(change.zones[name]):
                    continue
                self._renew(before, old.most_labels, now)
            self._began[name] = after
            if before is not None:
                moved.append(name)
        return moved

    def _add(self, name: str) -> None:
        row = zone_id(name) % _ROWS
        while _ROWS + row in self._rows:
            row = (row + 1) % _ROWS
        self._rows[_ROWS + row] = name
        # Numbers of a former life begin elsewhere: PowerDNS may still have answers of it.
        self._present[name] = (_ROWS + row) * _MOMENTS + random.randrange(_MOMENTS)  # noqa: S311 - no secret

    def _renew(self, before: ZoneAnswers, most_labels: int, now: float) -> None:
        old = self._present[before.name]
        row, low = divmod(old, _MOMENTS)
        new = row * _MOMENTS + (low + 1) % _MOMENTS
        self._past[old] = _Past(_snapshot(before, most_labels), self._began[before.name], now + KEPT_S)
        self._past.pop(new, None)
        self._present[before.name] = new


def _snapshot(zone: ZoneAnswers, most_labels: int) -> Snapshot:
    """One zone as it was."""
    by_zone = MappingProxyType({zone.name: zone.table()})
    return Snapshot(MappingProxyType({zone.name: zone}), by_zone, most_labels=most_labels)


def _differ(change: ZoneChange) -> bool:
    """Whether names or types came or went, so that proofs differ.

    A large zone that was read anew is taken to differ: nothing is answered while names are compared.
    """
    if change.sites is None and change.after is not None and len(change.after.fixed) > MOST_COMPARED:
        return True
    old, new = ({name: node for part in parts for name, node in part.items()} for parts in change.parts())
    return old.keys() != new.keys() or any(
        node is not new[name] and _shape(node) != _shape(new[name]) for name, node in old.items()
    )


def _shape(node: Node) -> tuple[set[str], bool]:
    return {record.type for record in node.records}, bool(node.failure)
