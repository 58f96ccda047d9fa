"""`/v1/history`: the availability of the servers of a pool, or of one server, out of the journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rspdns.history import ServerReport, histories, server_report
from rspdns.journal import JournalReader

MOST_SERVERS = 500
MOST_SPANS = 500
"""The latest of each server."""
MOST_SPANS_IN_ALL = 25_000
HOURS = 24.0
MOST_HOURS = 31 * 24.0
FRESH_S = 5.0
"""How long an answer is told again before the journal is read anew."""
_MOST_KEPT = 20


@dataclass(slots=True)
class HistoryPage:
    """The servers of a pool that were up or down in this time, in wall-clock seconds."""

    since_s: float
    until_s: float
    servers: list[ServerReport]


@dataclass(frozen=True, slots=True)
class HistoryWish:
    """The servers that somebody asks for, and for how many hours until now."""

    pool: str | None
    server: tuple[str, int] | None
    hours: float


def history_wish(query: Mapping[str, str]) -> HistoryWish:
    """Read a wish out of the parameters of a request. Raises ValueError."""
    pool, server = query.get("pool"), query.get("server")
    if (pool is None) == (server is None):
        raise ValueError("either pool (the name of SRV records, or a handle) or server (address:port)")
    try:
        hours = float(query.get("hours", HOURS))
    except ValueError:
        hours = 0.0
    if not 0 < hours <= MOST_HOURS:
        raise ValueError(f"hours is a number above 0, up to {MOST_HOURS:g}")
    if server is None:
        return HistoryWish(pool, None, hours)
    address, _, port = server.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise ValueError("server is address:port, for IPv6 [address]:port")
    return HistoryWish(None, (address.strip("[]"), int(port)), hours)


class Histories:
    """Reads the journal below `directory` in a thread, for a single request at a time."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._reading = asyncio.Lock()
        self._kept: dict[HistoryWish, HistoryPage] = {}

    async def page(self, wish: HistoryWish, handles: Collection[str] | None) -> HistoryPage:
        """Return the history of these handles, or of the wished server in all. Raises JournalError."""
        async with self._reading:
            kept = self._kept.pop(wish, None)
            if kept is None or time.time() - kept.until_s >= FRESH_S:
                kept = await asyncio.to_thread(self._read, wish, handles)
            self._kept[wish] = kept
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            return kept

    def _read(self, wish: HistoryWish, handles: Collection[str] | None) -> HistoryPage:
        until_s = time.time()
        since_s = until_s - wish.hours * 3600
        with closing(JournalReader(Path(self._directory))) as reader:
            found = histories(reader.runs(), reader.since(since_s, handles, wish.server), since_s, until_s)
        found = found[:MOST_SERVERS]
        most_spans = min(MOST_SPANS, MOST_SPANS_IN_ALL // max(1, len(found)))
        servers = [server_report(history, most_spans) for history in found]
        return HistoryPage(round(since_s, 3), round(until_s, 3), servers)
