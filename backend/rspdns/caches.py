"""The caches that must forget what changed: PowerDNS's, and those of the resolvers behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rspdns.answers.change import Change
from rspdns.event_log import EventLog
from rspdns.pdns.purge import Purger
from rspdns.resolvers import Resolvers


class Caches:
    """All of them. `controls` are PowerDNS's control sockets, `zones` gives the names of the served zones."""

    def __init__(
        self, controls: Sequence[str], events: EventLog, zones: Callable[[], Collection[str]]
    ) -> None:
        self.purger = Purger(controls, on_purged=self._purged)
        self.resolvers = Resolvers(zones)
        self._events = events
        self._reweighed: set[str] = set()
        """The names whose answers changed last by weights alone."""

    def published(self, names: Collection[str], change: Change) -> None:
        """The answers to these names changed; PowerDNS is being told."""
        self._events.published(names)
        if self.resolvers.is_any:
            reweighed = change.reweighed()
            self._reweighed.difference_update(names)
            self._reweighed |= reweighed
            self.resolvers.changed(set(names) - reweighed)
            self.resolvers.reweighed(reweighed)

    def _purged(self, path: str, names: Collection[str] | None, taken_s: float) -> None:
        """A PowerDNS forgot the names: an answer that a resolver got before may be of before."""
        self._events.purged(path, names, taken_s)
        if self.resolvers.is_any and names:
            self.resolvers.changed(set(names) - self._reweighed)
