"""The latest events, with the time each change took to reach every PowerDNS, and the listeners to them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from daemon_kit.addresses import endpoint
from daemon_kit.logs import get_logger
from daemon_kit.metrics import BucketCounts
from pool_user import BeliefEvent, Member

from rspdns.status.model import EventStatus

KEPT = 200
QUEUED = 256
"""The most events that wait for one listener; with more it is disconnected."""
LOGGED_EACH = 50
"""With more events at once, as at the start, the log has a line for each pool instead of each member."""
NAMED_TOGETHER, REASONS_TOGETHER = 50, 10
"""The most members, and reasons, in such a line: a stranger may make thousands."""
MAX_WAITING = 64
"""The most changes whose purge is waited for; beyond these the oldest is given up."""
CONVERGENCE_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_ALARMS = frozenset({"vanished"})
"""The kinds of events that somebody should look at."""
_CHANGING = frozenset({"joined", "left"})
"""The kinds of events that change answers."""


@dataclass(slots=True)
class Logged:
    """One event. `number` rises by one from 1; `at_s` is on the wall clock.

    `converged_ms` is how long it took from the event until every PowerDNS had purged the names whose answers
    changed by it; None until then, and for events that change no answer.
    """

    number: int
    at_s: float
    event: BeliefEvent
    name: str | None = None
    """The server's name for people."""
    converged_ms: float | None = None

    def status(self) -> EventStatus:
        """The event as status, API and page tell it."""
        event = self.event
        return EventStatus(
            number=self.number,
            at_s=round(self.at_s, 3),
            kind=event.kind,
            handle=event.handle,
            identifier=_member(event),
            address=_address(event),
            name=self.name,
            words=event.words,
            cause=event.cause.code,
            handlespace=event.handlespace or None,
            converged_ms=None if self.converged_ms is None else round(self.converged_ms, 3),
        )


def _member(event: BeliefEvent) -> str | None:
    return f"{event.identifier:08x}" if event.handle and event.identifier is not None else None


def _address(event: BeliefEvent) -> str | None:
    member = event.member
    return None if member is None else endpoint(str(member.addresses[0]), member.port)


class Listener:
    """A listener to every event from now on; `lost` once it was too slow."""

    def __init__(self) -> None:
        self.lost = False
        self._queue: asyncio.Queue[Logged] = asyncio.Queue(QUEUED)

    def put(self, logged: Logged) -> None:
        """Hand it an event."""
        try:
            self._queue.put_nowait(logged)
        except asyncio.QueueFull:
            self.lost = True

    async def next(self) -> Logged:
        """Return the next event, or again one that converged meanwhile."""
        return await self._queue.get()


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


class EventLog:
    """The last events. `counts` is by kind and since the start, as is `convergence`, in seconds."""

    def __init__(
        self,
        control_paths: Sequence[str],
        name_of: Callable[[str, Member], str | None] = lambda handle, member: None,
    ) -> None:
        self._name_of = name_of
        self.counts: Counter[str] = Counter()
        self.departures: Counter[str] = Counter()
        """The members that left, by cause."""
        self.convergence = BucketCounts(CONVERGENCE_BOUNDS_S)
        self.last_number = 0
        self._kept: deque[Logged] = deque(maxlen=KEPT)
        self._unpublished: list[int] = []
        self._unwritten: list[Sequence[BeliefEvent]] = []
        """Events that happened together and are not in the log yet."""
        self._converging = Convergence(control_paths)
        self._listeners: set[Listener] = set()
        self._log = get_logger("belief")

    def happened(self, events: Sequence[BeliefEvent]) -> None:
        """Note what happened, and write it to the log."""
        self.note(events)
        self.write()

    def note(self, events: Sequence[BeliefEvent]) -> None:
        """Note what happened, without the log: `write()` follows when nothing urgent waits for it."""
        for event in events:
            self.last_number += 1
            self.counts[event.kind] += 1
            logged = Logged(self.last_number, time.time(), event, self._name(event))
            self._kept.append(logged)
            if event.kind == "left":
                self.departures[event.cause.code] += 1
            if event.kind in _CHANGING:
                self._unpublished.append(logged.number)
            self._tell(logged)
        del self._unpublished[:-KEPT]
        self._unwritten.append(events)

    def write(self) -> None:
        """Write to the log what was noted since."""
        batches, self._unwritten = self._unwritten, []
        for events in batches:
            self._write(events)

    def _write(self, events: Sequence[BeliefEvent]) -> None:
        if len(events) <= LOGGED_EACH:
            for event in events:
                # Addresses and home registrars can be invented without end, pools and registrars can't.
                source = event.handle or str(event.identifier)
                log = self._log.warning if event.kind in _ALARMS else self._log.info
                cause = event.cause.code
                log(event.kind, **self._whom(event), why=event.words, cause=cause, _source=source)
        else:
            self._log_by_pool(events)

    def _name(self, event: BeliefEvent) -> str | None:
        return None if event.member is None else self._name_of(event.handle, event.member)

    def _whom(self, event: BeliefEvent) -> dict[str, str | None]:
        """How the log names the server of an event."""
        if not event.handle:
            return {"handlespace": event.handlespace} if event.handlespace else {}
        whom = {"handle": event.handle, "identifier": _member(event)}
        if event.member is not None:
            whom["address"] = _address(event)
        return whom | ({"name": name} if (name := self._name(event)) else {})

    def _log_by_pool(self, events: Sequence[BeliefEvent]) -> None:
        together: dict[tuple[str, str], list[BeliefEvent]] = {}
        for event in events:
            together.setdefault((event.kind, event.handle), []).append(event)
        for (kind, handle), some in together.items():
            whom: dict[str, object] = {}
            if handle:
                shown = some[:NAMED_TOGETHER]
                identifiers = [_member(event) for event in shown]
                whom = {"handle": handle, "members": len(some), "identifiers": identifiers}
                names = [name for event in shown if (name := self._name(event))]
                whom |= {"names": names} if names else {}
            reasons = list(dict.fromkeys(event.words for event in some))
            more = len(reasons) - REASONS_TOGETHER
            words = [*reasons[:REASONS_TOGETHER], *([f"and {more} more"] if more > 0 else [])]
            self._log.info(kind, **whom, why=", ".join(words))

    def published(self, names: Collection[str]) -> None:
        """The answers now hold everything that happened so far; `names` are to be purged."""
        events, self._unpublished = self._unpublished, []
        now = time.monotonic()
        self._done(self._converging.published(events, names, now), now)

    def purged(self, path: str, names: Collection[str] | None, taken_s: float) -> None:
        """See `Convergence.purged()`."""
        self._done(self._converging.purged(path, names, taken_s), time.monotonic())

    def statuses(self) -> list[EventStatus]:
        """The last events, the oldest first."""
        return [logged.status() for logged in self._kept]

    @property
    def first_number(self) -> int:
        """The number of the oldest event that is kept; of the next one if there is none."""
        return self._kept[0].number if self._kept else self.last_number + 1

    def since(self, number: int) -> list[Logged]:
        """The kept events after this number."""
        return [logged for logged in self._kept if logged.number > number]

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """Make a listener."""
        listener = Listener()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def _done(self, numbers: Collection[int], now: float) -> None:
        if not numbers:
            return
        slowest_ms = 0.0
        for logged in self._kept:
            if logged.number in numbers and logged.converged_ms is None:
                logged.converged_ms = max(0.0, now - logged.event.at_s) * 1000
                slowest_ms = max(slowest_ms, logged.converged_ms)
                self.convergence.observe(logged.converged_ms / 1000)
                self._tell(logged)
        self.write()  # what happened, before what came of it
        self._log.info("converged", events=list(numbers)[:20], ms=round(slowest_ms, 1))

    def _tell(self, logged: Logged) -> None:
        for listener in self._listeners:
            listener.put(logged)
