"""The caches that must forget what changed: PowerDNS's, those of the resolvers behind it, and the records of
clients that are told of changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rspdns.answers.change import Change
from rspdns.answers.snapshot import Snapshot
from rspdns.event_log import EventLog
from rspdns.next_records import NextRecords
from rspdns.pdns.purge import OnPurged, Purger
from rspdns.resolvers import Resolvers


class Caches:
    """All of them. `controls` are PowerDNS's control sockets, `zones` gives the names of the served zones,
    `on_purged` is told of each purge last, `snapshot` gives the answers of now."""

    def __init__(
        self,
        controls: Sequence[str],
        events: EventLog,
        zones: Callable[[], Collection[str]],
        on_purged: OnPurged,
        snapshot: Callable[[], Snapshot],
    ) -> None:
        self.purger = Purger(controls, on_purged=self._purged)
        self.resolvers = Resolvers(zones)
        self.records = NextRecords(snapshot)
        self._events = events
        self._zones = zones
        self._on_purged = on_purged
        self._reweighed: set[str] = set()
        """The names whose answers changed last by weights alone."""
        self._live_apexes: set[str] = set()
        """The zones at whose own names pools are. Others are purged because their serial moved."""

    def published(self, names: Collection[str], change: Change) -> None:
        """The answers to these names changed; PowerDNS is being told."""
        self._events.published(names)
        self.records.published(names, change)
        if self.resolvers.is_any:
            reweighed = change.reweighed()
            changed = set(names) - reweighed
            self._reweighed = (self._reweighed | reweighed) - changed
            self._live_apexes |= changed.intersection(self._zones())
            self.resolvers.changed(changed)
            self.resolvers.reweighed(reweighed)

    def _purged(self, path: str, names: Collection[str] | None, taken_s: float) -> None:
        """A PowerDNS forgot the names: an answer that a resolver got before may be of before."""
        self._events.purged(path, names, taken_s)
        if self.resolvers.is_any and names:
            quiet = self._reweighed | (set(self._zones()) - self._live_apexes)
            self.resolvers.changed(set(names) - quiet)
        self._on_purged(path, names, taken_s)
