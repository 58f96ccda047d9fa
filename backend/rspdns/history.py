"""The history of each server: spans of time in which it was up, down, planned or unknown. Pure.

A server is *up* while it is in the answers of this name server, under any PE identifier. It is *planned*
while it is out because a person wanted it so (`Code.is_planned`), until a drain's end, otherwise *down*.
It is *unknown* while no backend looked, or its journal could not be written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address
from itertools import groupby
from operator import attrgetter
from typing import Annotated

import orjson
from daemon_kit.addresses import endpoint
from pool_user import Cause, Code, ServerAddress
from pydantic import Field, TypeAdapter, ValidationError

from rspdns.journal import HEARTBEAT_S, JournalRow, JournalRun

_CAUSE = TypeAdapter(Cause)
STILL_RUNS_S = 3 * HEARTBEAT_S
"""A run that was seen so lately goes on."""


class Availability(StrEnum):
    """The state of a server in a span."""

    UP = "up"
    DOWN = "down"
    PLANNED = "planned"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Span:
    """A span, in wall-clock seconds; `cause` tells why the server was out. `continues`: it was so before a
    time that is unknown, too."""

    state: Availability
    from_s: float
    until_s: float
    cause: Cause | None = None
    continues: bool = False

    @property
    def length_s(self) -> float:
        """Its length, in seconds."""
        return self.until_s - self.from_s


@dataclass(slots=True)
class ServerHistory:
    """The spans of a server of a pool, the oldest first, without gaps between them."""

    handle: str
    address: str
    port: int
    transport: str
    name: str | None = None
    changes: int = 0
    spans: list[Span] = field(default_factory=list)

    @property
    def server(self) -> str:
        """Address and port."""
        return endpoint(self.address, self.port)

    @property
    def server_address(self) -> ServerAddress:
        """Address and port as values."""
        return ip_address(self.address), self.port

    def total_s(self, state: Availability) -> float:
        """How long it was in this state, in seconds."""
        return sum(span.length_s for span in self.spans if span.state is state)

    @property
    def availability(self) -> float | None:
        """Up, of the time in which it was up or down: from 0 to 1; None if that is no time."""
        up_s = self.total_s(Availability.UP)
        known_s = up_s + self.total_s(Availability.DOWN)
        return up_s / known_s if known_s else None

    @property
    def outages(self) -> int:
        """How often it went down."""
        return sum(span.state is Availability.DOWN and not span.continues for span in self.spans)

    @property
    def longest_outage_s(self) -> float:
        """Its longest time down."""
        return max((span.length_s for span in self.spans if span.state is Availability.DOWN), default=0.0)

    @property
    def down_by_cause_s(self) -> dict[str, float]:
        """The seconds down by the cause's code."""
        seconds: dict[str, float] = {}
        for span in self.spans:
            if span.state is Availability.DOWN and span.cause is not None:
                code = str(span.cause.code)
                seconds[code] = seconds.get(code, 0.0) + span.length_s
        return seconds


class _Server:
    """A server while its rows are read."""

    def __init__(self, entry: JournalRow, since_s: float) -> None:
        self._since_s = since_s
        self.history = ServerHistory(entry.handle, entry.address, entry.port, entry.transport)
        self.identifiers: set[int] = set()
        self.state = Availability.UNKNOWN
        self.before = Availability.UNKNOWN
        """The last state that was known."""
        self.cause: Cause | None = None
        self.last_cause: Cause | None = None
        self.planned_until_s = float("inf")
        self.at_s = entry.at_s
        self.continues = False

    def turn(self, at_s: float, state: Availability, cause: Cause | None, *, continues: bool = False) -> None:
        """The server has another state from now on."""
        if self.state is Availability.PLANNED and self.planned_until_s < at_s:
            until_s, self.planned_until_s = self.planned_until_s, float("inf")
            self.turn(until_s, Availability.DOWN, self.cause)
        at_s = max(at_s, self.at_s)
        if at_s > self.at_s and at_s > self._since_s:
            self.history.spans.append(Span(self.state, self.at_s, at_s, self.cause, self.continues))
        if self.state is not Availability.UNKNOWN:
            self.before, self.last_cause = self.state, self.cause
        self.state, self.cause, self.at_s, self.continues = state, cause, at_s, continues

    def leave(self, at_s: float) -> None:
        """The run ends: the state is unknown from now on."""
        if self.state is not Availability.UNKNOWN:
            self.turn(at_s, Availability.UNKNOWN, None)

    def read(self, entry: JournalRow) -> None:
        """Take a row."""
        self.history.name = entry.name or self.history.name
        if entry.kind == "examined":
            if self.cause is not None:
                self.cause = replace(self.cause, finding=cause_of(entry.code, entry.facts).finding)
            return
        if entry.kind == "judged":
            if not self.identifiers and self.state in (Availability.DOWN, Availability.PLANNED):
                self._out(entry)
            return
        if entry.kind == "left":
            self.identifiers.discard(entry.identifier)
        else:
            self.identifiers.add(entry.identifier)
        if self.identifiers:
            if self.state is not Availability.UP:
                self.turn(entry.at_s, Availability.UP, None)
        elif entry.kind == "left" and self.state in (Availability.UP, Availability.UNKNOWN):
            self._out(entry)

    def _out(self, entry: JournalRow) -> None:
        cause = cause_of(entry.code, entry.facts)
        self.turn(entry.at_s, Availability.PLANNED if cause.code.is_planned else Availability.DOWN, cause)
        planned_s = float("inf") if cause.planned_s is None else cause.planned_s
        self.planned_until_s = entry.at_s + planned_s


def histories(
    runs: Iterable[JournalRun], entries: Iterable[JournalRow], since_s: float, until_s: float
) -> list[ServerHistory]:
    """The history of every server that was up or down between two moments, by handle and server.

    `runs` and `entries` come with the oldest first: entries before `since_s` tell the state at that moment.
    """
    servers: dict[tuple[str, str, int], _Server] = {}
    by_run = groupby(entries, key=attrgetter("run"))
    number, of_run = next(by_run, (None, iter(())))
    end_s = float("-inf")
    runs = list(runs)
    for run in runs:
        began_s = max(run.began_s, end_s)
        is_running = run is runs[-1] and not run.is_ended and until_s - run.seen_s < STILL_RUNS_S
        end_s = max(began_s, until_s if is_running else run.seen_s)
        for server in servers.values():
            server.identifiers.clear()
            if server.before in (Availability.DOWN, Availability.PLANNED):
                server.turn(began_s, server.before, server.last_cause, continues=True)
        for entry in of_run if number == run.run else ():
            key = entry.handle, entry.address, entry.port
            server = servers.get(key) or servers.setdefault(key, _Server(entry, since_s))
            end_s = max(end_s, entry.at_s)
            was_known = server.state is not Availability.UNKNOWN
            if was_known and since_s <= entry.at_s <= until_s and entry.kind in ("joined", "left"):
                server.history.changes += 1
            server.read(entry)
        if number == run.run:
            number, of_run = next(by_run, (None, iter(())))
        for server in servers.values():
            server.leave(end_s)
    for server in servers.values():
        server.turn(until_s, Availability.UNKNOWN, None)
    found = [_clipped(server.history, since_s, until_s) for server in servers.values()]
    found = [
        history for history in found if any(span.state is not Availability.UNKNOWN for span in history.spans)
    ]
    return sorted(found, key=lambda history: (history.handle, history.name or "", history.server))


def _clipped(history: ServerHistory, since_s: float, until_s: float) -> ServerHistory:
    history.spans = [
        replace(span, from_s=max(span.from_s, since_s), until_s=min(span.until_s, until_s))
        for span in history.spans
        if span.until_s > since_s and span.from_s < until_s
    ]
    return history


@lru_cache(maxsize=1024)
def cause_of(code: str, facts: str) -> Cause:
    """The cause of a row with this code and these facts; that of a newer version is only "left"."""
    try:
        return _CAUSE.validate_python({"code": Code(code), **orjson.loads(facts)})
    except (ValueError, TypeError, ValidationError):
        return Cause(Code.GONE)


@dataclass(slots=True)
class SpanReport:
    """A span, in wall-clock seconds."""

    state: Availability
    from_s: float
    until_s: float
    cause: Code | None
    words: Annotated[str | None, Field(description="why the server was out")]


@dataclass(slots=True)
class ServerReport:
    """The availability of a server of a pool handle: seconds in each state, and its spans."""

    handle: str
    server: Annotated[str, Field(description="address and port")]
    transport: str
    name: str | None
    availability: Annotated[
        float | None, Field(ge=0, le=1, description="up, of the time up or down; null: that is no time")
    ]
    up_s: float
    down_s: float
    planned_s: Annotated[float, Field(description="out because a person wanted it so")]
    unknown_s: Annotated[float, Field(description="no backend looked")]
    outages: int
    longest_outage_s: float
    changes: int
    down_by_cause_s: dict[str, float]
    spans: Annotated[list[SpanReport], Field(description="the oldest first")]


def server_report(history: ServerHistory, most_spans: int | None = None) -> ServerReport:
    """Return the history for people and programs, with the latest spans."""
    availability = history.availability
    first = 0 if most_spans is None else max(0, len(history.spans) - most_spans)
    return ServerReport(
        handle=history.handle,
        server=history.server,
        transport=history.transport,
        name=history.name,
        availability=None if availability is None else round(availability, 6),
        up_s=round(history.total_s(Availability.UP), 3),
        down_s=round(history.total_s(Availability.DOWN), 3),
        planned_s=round(history.total_s(Availability.PLANNED), 3),
        unknown_s=round(history.total_s(Availability.UNKNOWN), 3),
        outages=history.outages,
        longest_outage_s=round(history.longest_outage_s, 3),
        changes=history.changes,
        down_by_cause_s={code: round(seconds, 3) for code, seconds in history.down_by_cause_s.items()},
        spans=[
            SpanReport(
                span.state,
                round(span.from_s, 3),
                round(span.until_s, 3),
                None if span.cause is None else span.cause.code,
                None if span.cause is None else span.cause.words,
            )
            for span in history.spans[first:]
        ],
    )
