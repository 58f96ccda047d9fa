"""The messages of hooks: their form, their signature, and which rows of the journal are news. Pure."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

import orjson
from daemon_kit.addresses import endpoint
from pydantic import Field

from rspdns.history import cause_of
from rspdns.journal import JournalRow
from rspdns.status.build import hexadecimal
from rspdns.status.model import Count, Identifier, MemberStatus, Number, PoolStatus, ServerName

MOST_MEMBERS = 500
"""The most members of a pool that a message holds."""
MOST_LINES = 20
"""The most events of a message for people."""
_KINDS = {"joined": "joined", "left": "left", "changed": "moved"}
"""The kinds of events by those of the journal's rows; other rows are no events of hooks."""
MemberKey = tuple[str, str, int, int]
"""Handle, address, port and PE identifier."""


@dataclass(slots=True)
class HookEvent:
    """A server that came, went, or got another home registrar."""

    id: Annotated[str, Field(description="the same in every message that holds this event")]
    at_s: Annotated[Number, Field(description="wall clock, seconds since 1970")]
    kind: Annotated[str, Field(description="joined, left, or moved: it has another home registrar")]
    handle: Annotated[str, Field(description="the pool handle")]
    identifier: Identifier
    address: Annotated[str, Field(description="address and port of the server")]
    name: ServerName
    cause: Annotated[str, Field(description="why, as a code")]
    words: Annotated[str, Field(description="why, for people")]


@dataclass(slots=True)
class HookPool:
    """A pool that the events are about, as it was at the message's timestamp."""

    owner: Annotated[str, Field(description="where its SRV records stand")]
    handles: list[str]
    known: Annotated[bool, Field(description="false: no registrar has told of it yet")]
    members: Annotated[list[MemberStatus], Field(description=f"in the answers; the first {MOST_MEMBERS}")]
    members_total: Count


@dataclass(slots=True)
class HookData:
    """The contents of a message."""

    host: Annotated[str, Field(description="the name server that tells")]
    lost: Annotated[Count, Field(description="changes before these that were lost, at most")]
    events: Annotated[list[HookEvent], Field(description="the oldest first")]
    pools: list[HookPool]


@dataclass(slots=True)
class HookMessage:
    """A message of a hook (Standard Webhooks)."""

    type: Literal["pool.changed"]
    timestamp: Annotated[str, Field(description="when it was made (ISO 8601)")]
    data: HookData

    def body(self) -> bytes:
        """The message as JSON."""
        return orjson.dumps(self)

    def text_body(self) -> bytes:
        """The message for people, as chats take it."""
        lines = [
            f"{event.name or event.address} {event.kind} {event.handle}: {event.words}"
            for event in self.data.events[:MOST_LINES]
        ]
        if (more := len(self.data.events) - MOST_LINES) > 0:
            lines.append(f"and {more} more")
        if self.data.lost:
            lines.append(f"up to {self.data.lost} changes before these were lost")
        lines += [f"{pool.owner}: {pool.members_total} in" for pool in self.data.pools]
        return orjson.dumps({"text": "\n".join([f"rspdns at {self.data.host}:", *lines])})


def message(
    host: str, lost: int, events: Sequence[HookEvent], pools: Iterable[PoolStatus], now_s: float
) -> HookMessage:
    """Make a message of these events; `now_s` is on the wall clock."""
    return HookMessage(
        "pool.changed",
        datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds"),
        HookData(
            host,
            lost,
            list(events),
            [
                HookPool(pool.owner, pool.handles, pool.known, pool.members[:MOST_MEMBERS], len(pool.members))
                for pool in pools
            ],
        ),
    )


def signature(key: bytes, identifier: str, timestamp_s: int, body: bytes) -> str:
    """The value of the header webhook-signature (Standard Webhooks 1.0)."""
    digest = hmac.digest(key, f"{identifier}.{timestamp_s}.".encode() + body, "sha256")
    return f"v1,{base64.b64encode(digest).decode()}"


class JournalNews:
    """Finds the rows of the journal that are news.

    Each run of the journal begins with a row for every member that is in. Such a row is no news for members
    that were in at the end of the run before. `inside` are the members that were in at the last row that was
    read. A member that left while no backend ran is never told as left: `members` of the message tell that.
    """

    def __init__(self, inside: Iterable[MemberKey]) -> None:
        self._run: int | None = None
        self._former = set(inside)
        """The members of the run before that this run has not told of yet."""
        self._inside: set[MemberKey] = set()

    def news(self, rows: Iterable[JournalRow], handles: Collection[str] | None, tag: str) -> list[HookEvent]:
        """The events among these rows, of these handles or of all; `tag` names the journal."""
        return [
            HookEvent(
                f"{tag}-{row.sequence}",
                round(row.at_s, 3),
                _KINDS[row.kind],
                row.handle,
                hexadecimal(row.identifier) or "",
                endpoint(row.address, row.port),
                row.name,
                row.code,
                cause_of(row.code, row.facts).words,
            )
            for row in rows
            if self._is_news(row) and (handles is None or row.handle in handles)
        ]

    def _is_news(self, row: JournalRow) -> bool:
        if row.kind not in _KINDS:
            return False
        if row.run != self._run:
            self._run = row.run
            self._former |= self._inside
            self._inside = set()
        key = row.handle, row.address, row.port, row.identifier
        was_in = key in self._former or key in self._inside
        self._former.discard(key)
        self._inside.discard(key)
        if row.kind == "left":
            return was_in
        self._inside.add(key)
        return row.kind == "changed" or not was_in
