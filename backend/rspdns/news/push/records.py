"""The records that clients are told of, once for all sessions; the difference of two answers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import dns.rcode
import dns.rdatatype

from rspdns import names
from rspdns.news.push.dso import ALL_REMOVED, REMOVED, RecordChange

MOST_NAMES = 100_000
"""The most names that are watched at once, for all sessions together."""


class PushedSet(NamedTuple):
    """The TTL of an RRset, and the data of its records on the wire."""

    ttl: int
    data: frozenset[bytes]


NameRecords = Mapping[int, PushedSet]
"""The RRsets of a name by type; none: it has none, or there is no such name."""
NameAnswer = NameRecords | dns.rcode.Rcode
"""The records of a name, or why it has no answer: SERVFAIL or NOTAUTH."""


class RecordWatcher(Protocol):
    """A session, for the store."""

    def renewed(self, name: str) -> None: ...  # noqa: D102 - `PushSession` says it


class RecordStore:
    """The answers of now for every name that a session watches. The server asks the backend for the names in
    `missing`, and again for those that changed."""

    def __init__(self) -> None:
        self.missing: dict[str, None] = {}
        """The names whose records nobody asked for yet, in the order in which they were wanted."""
        self._answers: dict[str, NameAnswer] = {}
        self._watchers: dict[str, set[RecordWatcher]] = {}

    @property
    def is_full(self) -> bool:
        """Whether no further name is watched."""
        return len(self._watchers) >= MOST_NAMES

    @property
    def watched(self) -> Collection[str]:
        """The names that sessions watch."""
        return self._watchers.keys()

    def answer(self, name: str) -> NameAnswer | None:
        """Return the answer for a name that is watched; None: it is not known yet."""
        return self._answers.get(name)

    def watch(self, name: str, watcher: RecordWatcher) -> None:
        """Tell this session of the name's records from now on."""
        watchers = self._watchers.get(name)
        if watchers is None:
            self._watchers[name] = {watcher}
            self.missing[name] = None
        else:
            watchers.add(watcher)

    def leave(self, name: str, watcher: RecordWatcher) -> None:
        """Tell this session no more of it."""
        watchers = self._watchers[name]
        watchers.discard(watcher)
        if not watchers:
            del self._watchers[name]
            self._answers.pop(name, None)
            self.missing.pop(name, None)

    def take(self, name: str, answer: NameAnswer) -> Collection[RecordWatcher]:
        """This is the answer from now on. Return the sessions that have something to tell by it."""
        if name not in self._watchers or self._answers.get(name) == answer:
            return ()
        self._answers[name] = answer
        for watcher in self._watchers[name]:
            watcher.renewed(name)
        return tuple(self._watchers[name])

    def concerned(self, changed: Iterable[str]) -> list[str]:
        """Return the watched names among these; "name$" stands for the name and all below it."""
        found = [name for name in changed if name in self._watchers]
        for whole in (name[:-1] for name in changed if name.endswith("$")):
            found += [name for name in self._watchers if names.is_at_or_below(name, whole)]
        return list(dict.fromkeys(found))


def types_of(wanted: Iterable[int]) -> frozenset[int] | None:
    """Return the types that subscriptions to these types are told of; None: all."""
    found = frozenset(wanted)
    return None if dns.rdatatype.ANY in found else found | {int(dns.rdatatype.CNAME)}


def difference(
    name: str, before: NameRecords, after: NameRecords, types: Collection[int] | None
) -> list[RecordChange]:
    """Return what turns one answer into the other, for a client that knows these types of it; None: all.

    Additions stand before removals, so that no client sees an empty answer between.
    """
    added, removed = list[RecordChange](), list[RecordChange]()
    gone = 0
    for number in sorted({*before, *after}):
        if types is not None and number not in types:
            continue
        old, new = before.get(number), after.get(number)
        if new is None:
            gone += 1
            removed.append(RecordChange(name, number, ALL_REMOVED))
            continue
        known = old.data if old is not None else frozenset[bytes]()
        is_same_ttl = old is not None and old.ttl == new.ttl
        coming = new.data - known if is_same_ttl else new.data
        added += _changes(name, number, new.ttl, coming)
        removed += _changes(name, number, REMOVED, known - new.data)
    if gone > 1 and not after:
        return [RecordChange(name, int(dns.rdatatype.ANY), ALL_REMOVED)]
    return added + removed


def _changes(name: str, number: int, ttl: int, data: Iterable[bytes]) -> Iterator[RecordChange]:
    return (RecordChange(name, number, ttl, each) for each in sorted(data))
