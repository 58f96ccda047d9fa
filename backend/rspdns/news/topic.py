"""The news of one pool: their numbers, the ports that are open, and the port that is the next to open. Pure.

A client that has the news up to number N polls one port, and a client that has N + 1 another one. So whoever
finds a port open misses just the news after N, and is told all of them and the next port.

| event | port of the next news | ports of former news |
|---|---|---|
| news | opens; a new one is reserved | stay open, and tell the newest news, too |
| `time_to_live_s` after its news | | closes |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rspdns.news.message import Subscription, packed
from rspdns.pending_changes import PendingChanges

MOST_TOLD_BYTES = 128 * 1024
"""The largest body with changes: a kernel takes it at once (net.core.wmem_max is 212,992 by default). A
client that misses more is told the members alone."""
MOST_KEPT = 64
"""The most pieces of news that are told to a client that was away; before these only the members are told."""


@dataclass(slots=True)
class OpenPort:
    """A port that tells the news after number `after`, until `until_s` on the wall clock."""

    port: int
    after: int
    until_s: float


@dataclass(slots=True)
class News:
    """A piece of news: the changes that came together."""

    number: int
    changes: list[dict[str, Any]]
    missed: bool
    """Whether there were changes before that are not known."""


@dataclass(slots=True)
class Topic:
    """The news of the pool whose SRV records are at `owner`. `life` names the sequence of its numbers."""

    owner: str
    life: str
    next_port: int
    pending: PendingChanges
    """The changes that are no news yet, and the pool as it was told last."""
    number: int = 0
    kept: deque[News] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    open: list[OpenPort] = field(default_factory=list)
    source_life: str | None = None
    source_number: int = 0
    """How far the backend's events are read, and in which life of the backend."""
    host: str = ""

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take what the backend told (`next_change.NextChange.tell`)."""
        self.source_life, self.source_number = answer["life"], answer["number"]
        self.host = answer["host"]
        is_first = not self.pending.pool
        self.pending.take(answer)
        if is_first and self.number == 0:
            self.pending.ran(0.0, 0.0, is_done=True)  # subscribers are told of the pool as it is

    def is_due(self, now: float) -> bool:
        """Tell whether there is something to publish, and the last news are long enough ago."""
        is_known = bool(self.pending.pool.get("known"))
        return self.pending.why is not None and is_known and now >= self.pending.due_s

    def publish(self, now: float, wall_s: float, next_port: int, life_s: float) -> OpenPort:
        """Make the pending changes the next news. Return the port that is to open; `next_port` follows it."""
        self.kept.append(News(self.number + 1, self.pending.changes, self.pending.missed))
        opened = OpenPort(self.next_port, self.number, wall_s + life_s)
        self.open.append(opened)
        self.number, self.next_port = self.number + 1, next_port
        self.pending.ran(now, now, is_done=True)
        return opened

    def expire(self, wall_s: float) -> list[OpenPort]:
        """Return the ports whose time is over; they are to close."""
        over = [opened for opened in self.open if not 0 <= opened.until_s - wall_s <= 3600]
        self.open = [opened for opened in self.open if opened not in over]
        return over

    def last_known(self, subscription: Subscription) -> int | None:
        """Return the number of the news that a client has; None: none that are known here."""
        number = subscription.number
        if number is None or subscription.life != self.life or not 0 <= number <= self.number:
            return None
        # News that were told and then lost by a crash share their number with others, never their next port.
        return None if number == self.number and subscription.port != self.next_port else number

    def oldest(self, after: int | None) -> int | None:
        """Return `after`; for clients that lack news which are not kept any more, the same number for all."""
        return max(after, self.kept[0].number - 2) if after is not None and self.kept else after

    def document(self, after: int | None, *, is_first: bool = False) -> dict[str, Any]:
        """Return what a client is told that has the news up to `after`; None: it has none of this life."""
        common = {"owner": self.owner, "life": self.life, "number": self.number, "port": self.next_port}
        if after == self.number:
            return common
        news = [] if after is None else [news for news in self.kept if news.number > after]
        is_gap = after is None if not news else news[0].number != (after or 0) + 1
        answer = {
            "missed": (is_gap and not is_first) or any(piece.missed for piece in news),
            "changes": [change for piece in news for change in piece.changes],
            "host": self.host,
            "pool": self.pending.pool,
        }
        return {**common, "answer": answer}

    def body(self, after: int | None, terms: Mapping[str, Any], *, is_first: bool = False) -> bytes:
        """Return the body for a client that has the news up to `after`, with the `terms` of polling."""
        document = {**self.document(after, is_first=is_first), **terms}
        body = packed(document)
        if len(body) > MOST_TOLD_BYTES and document["answer"]["changes"]:
            answer = {**document["answer"], "changes": [], "missed": True}
            body = packed({**document, "answer": answer})
        return body

    def state(self) -> dict[str, Any]:
        """Return what outlives a restart."""
        return {
            "owner": self.owner,
            "life": self.life,
            "number": self.number,
            "next_port": self.next_port,
            "source": [self.source_life, self.source_number],
            "host": self.host,
            "pool": self.pending.pool,
            "pending": [self.pending.changes, self.pending.missed, self.pending.why is not None],
            "kept": [[piece.number, piece.changes, piece.missed] for piece in self.kept],
            "open": [[opened.port, opened.after, opened.until_s] for opened in self.open],
        }


def restored(state: Mapping[str, Any], pending: PendingChanges) -> Topic:
    """Return the topic that `state()` described. Raises KeyError, TypeError or ValueError for other data."""
    topic = Topic(str(state["owner"]), str(state["life"]), int(state["next_port"]), pending)
    topic.number, topic.host = int(state["number"]), str(state["host"])
    topic.source_life, topic.source_number = state["source"]
    pending.pool = dict(state["pool"])
    if pending.pool:
        pending.ran(0.0, 0.0, is_done=True)
        changes, missed, is_due = state.get("pending", ([], False, False))
        pending.changes, pending.missed = list(changes), bool(missed)
        pending.why = "change" if is_due else None
    topic.kept.extend(
        News(int(number), list(changes), bool(missed)) for number, changes, missed in state["kept"]
    )
    topic.open = [OpenPort(int(port), int(after), float(until_s)) for port, after, until_s in state["open"]]
    return topic


def concerned(topics: Mapping[str, Topic], events: Iterator[Mapping[str, Any]]) -> list[Topic]:
    """Return the topics whose pools these events are about, or whose pools are not known yet."""
    handles = {event["handle"] for event in events}
    return [
        topic
        for topic in topics.values()
        if not topic.pending.pool or not handles.isdisjoint(topic.pending.pool["handles"])
    ]
