"""The journal: every member that came and went, kept in one small file for `rspdns report`.

The event loop only appends to a bounded queue (`Journal.take`); a thread of its own writes. The file is
SQLite:

- WAL with synchronous NORMAL: a commit is one write without fsync, and outlives SIGKILL of the backend. A
  power failure may cost the commits since the last checkpoint, never the file. FULL would buy these seconds
  with an fsync for each batch.
- A row has monotonic time. Its run has the offset to the wall clock, set anew when the clock steps: durations
  are exact, and a step never makes an outage.
- A run is a time in which somebody looked and wrote. `seen_s` advances while it goes on, so the end of a run
  that SIGKILL ended is known to within HEARTBEAT_S. Between two runs nothing is known.
- Each run begins with a row for every member that is in. So a full queue and a full disk need no mechanism of
  their own: they end the run, and when writing works again a new run begins.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from daemon_kit.logs import get_logger
from pool_user import BeliefChange, BeliefEvent, Cause, Code, Departure, Member

from rspdns.member_counts import MemberCounts

FILE_NAME = "journal.sqlite3"
FORMAT = 1
QUEUED = 20_000
"""The most rows that wait to be written; with more the run ends, and those are counted as lost."""
MOST_ROWS = 500_000
"""The most rows of the file, about 40 MiB; with more the oldest are dropped."""
BATCH_S = 0.2
"""How long rows are gathered for one transaction."""
HEARTBEAT_S = 2.0
RETRY_S = 5.0
"""Time between two trials to write after a failure."""
PRUNE_EVERY_S = 600.0
CLOCK_STEP_S = 0.05
"""A difference of wall clock and monotonic clock that moves the times of the run."""
MOST_DAMAGED = 5
"""The most damaged files that are kept; beyond, the next replaces the last. A failing disk is not filled."""
CLOSE_S = 3.0
"""How long the end of the backend waits for the last rows: a disk that hangs must not keep it."""
DAY_S = 86_400.0

_SCHEMA = """
CREATE TABLE run (
    run INTEGER PRIMARY KEY AUTOINCREMENT,
    offset_s REAL NOT NULL,  -- wall clock less monotonic clock
    began_s REAL NOT NULL,   -- monotonic, as is seen_s
    seen_s REAL NOT NULL,
    is_ended INTEGER NOT NULL DEFAULT 0,  -- 0 for a run that was killed, or that goes on
    lost INTEGER NOT NULL DEFAULT 0       -- rows that were lost before it began
);
CREATE TABLE change (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    mono_s REAL NOT NULL,
    kind TEXT NOT NULL,      -- joined, left, changed (its home registrar), examined, judged (why it is out)
    handle TEXT NOT NULL,
    address TEXT NOT NULL,
    port INTEGER NOT NULL,
    transport TEXT NOT NULL,
    identifier INTEGER NOT NULL,
    name TEXT,
    code TEXT NOT NULL,      -- pool_user.Code
    facts TEXT NOT NULL      -- the cause, JSON
);
"""
_INSERT = (
    "INSERT INTO change (run, mono_s, kind, handle, address, port, transport, identifier, name, code, facts)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

_SELECT = (
    "SELECT sequence, run, mono_s + offset_s, kind, handle, address, port, transport, identifier, name, code,"
    " facts FROM change JOIN run USING (run)"
)
_SELECT_LAST = _SELECT.replace("sequence", "max(sequence) AS newest", 1)
"""For GROUP BY: the other columns are those of the row with this number."""

_Row = tuple[float, str, str, Member, Cause]
_Key = tuple[str, int]
_HERE = Cause(Code.REGISTERED)
_GONE = Cause(Code.GONE)


def _cause_from(departure: Departure, now: float) -> Cause:
    """The cause, with the time that is planned from now on."""
    planned_s = departure.planned_s(now)
    return replace(departure.cause, planned_s=planned_s if planned_s and math.isfinite(planned_s) else None)


class JournalError(Exception):
    """The journal can't be read; the words say which file, what is wrong and what to do."""


class OtherFormatError(sqlite3.DatabaseError):
    """Another version of rspdns wrote the file."""


class JournalRow(NamedTuple):
    """A row, with its time on the wall clock."""

    sequence: int
    run: int
    at_s: float
    kind: str
    handle: str
    address: str
    port: int
    transport: str
    identifier: int
    name: str | None
    code: str
    facts: str


class JournalRun(NamedTuple):
    """A time in which the backend looked and wrote, on the wall clock."""

    run: int
    began_s: float
    seen_s: float
    is_ended: bool
    lost: int


class Journal:
    """Writes the journal of one backend. `name_of` gives a server's name for people.

    `problem` is for the status; `lost` counts rows that were never written.
    """

    def __init__(
        self,
        directory: str | Path,
        history_days: float,
        name_of: Callable[[str, Member], str | None] = lambda handle, member: None,
    ) -> None:
        self.path = Path(directory) / FILE_NAME
        self.problem: str | None = None
        self.lost = 0
        self.counts = MemberCounts()
        self._history_s = history_days * DAY_S
        self._name_of = name_of
        self._queue: deque[_Row] = deque()
        self._inside: dict[_Key, Member] = {}
        """The members that are in, by handle and identifier: the beginning of a run."""
        self._lock = threading.Lock()
        """Guards `_queue`, `_inside` and `_is_broken` together."""
        self._standing: dict[_Key, tuple[int, Member]] = {}
        """The rows of the members that are written as in: they are kept however old they are. For the
        thread alone."""
        self._is_broken = False
        """Whether rows are not queued: a run is to begin with the members that are in then."""
        self._began_s = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._log = get_logger("journal")

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits, and end the run."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def take(self, change: BeliefChange) -> None:
        """Note a change of the belief. Costs what changed, and never waits for the disk."""
        now = time.monotonic()
        self.counts.take(change, now)
        rows: list[_Row] = []
        for handle, pool in change.pools.items():
            rows += [(now, "left", handle, departure.member, departure.cause) for departure in pool.left]
            rows += [(now, "judged", handle, each.member, _cause_from(each, now)) for each in pool.judged]
            for member in pool.joined:
                cause = Cause(Code.REGISTERED, registrar=f"{member.home_registrar:08x}")
                rows.append((now, "joined", handle, member, cause))
            for old, new in pool.moved:
                home = f"{new.home_registrar:08x}"
                if old.transport_addresses != new.transport_addresses:
                    rows.append((now, "left", handle, old, _GONE))
                    rows.append((now, "joined", handle, new, Cause(Code.REGISTERED, registrar=home)))
                elif old.home_registrar != new.home_registrar:
                    moved = Cause(Code.MOVED, registrar=home, former=f"{old.home_registrar:08x}")
                    rows.append((now, "changed", handle, new, moved))
        self._add(rows)

    def happened(self, events: Iterable[BeliefEvent]) -> None:
        """Note what a probe said of members that had left: it is part of the cause."""
        self._add(
            [
                (event.at_s, event.kind, event.handle, event.member, event.cause)
                for event in events
                if event.kind == "examined" and event.member is not None
            ]
        )

    def _add(self, rows: list[_Row]) -> None:
        if not rows:
            return
        with self._lock:
            for _, kind, handle, member, _ in rows:
                if kind == "left":
                    self._inside.pop((handle, member.identifier), None)
                elif kind in ("joined", "changed"):
                    self._inside[handle, member.identifier] = member
            if not self._is_broken and len(self._queue) + len(rows) > QUEUED:
                self._is_broken = True
                self.lost += len(self._queue)
                self._queue.clear()
            if self._is_broken:
                self.lost += len(rows)
            else:
                self._queue.extend(rows)

    def _work(self) -> None:
        """The thread: begin a run, write until something fails, try again."""
        while True:
            try:
                with contextlib.closing(_opened(self.path)) as file:
                    _Writer(self, file).write()
            except (sqlite3.Error, OSError) as problem:
                self._failed(problem)
            except Exception as problem:
                self._log.error("journal_failed", exc_info=True)
                self._failed(problem)
            if self._stopping.wait(0 if self.problem is None else RETRY_S):
                return

    def _failed(self, problem: Exception) -> None:
        with self._lock:
            self._is_broken = True
            self.lost += len(self._queue)
            self._queue.clear()
        words = f"{self.path}: the journal is not written: {problem}. `rspdns report` will lack this time"
        if isinstance(problem, OtherFormatError) or type(problem) is sqlite3.DatabaseError:
            with contextlib.suppress(OSError):
                words = (
                    f"{self.path}: damaged ({problem}); kept as {_set_aside(self.path)}. A new journal begins"
                )
        if words != self.problem:
            self._log.warning("journal_not_written", problem=words)
        self.problem = words

    def _begin(self) -> tuple[dict[_Key, Member], float]:
        """Let rows be queued from now on; return the members that are in, and when that was."""
        with self._lock:
            if not self._is_broken:
                return {}, self._began_s  # the first run: the queue has everything since
            self._is_broken = False
            self._began_s = time.monotonic()
            return dict(self._inside), self._began_s

    def _next(self) -> list[_Row] | None:
        """The rows that wait; None when some were lost."""
        with self._lock:
            rows = list(self._queue)
            self._queue.clear()
            return None if self._is_broken else rows

    def _lose(self, rows: int) -> None:
        """Count rows that were taken from the queue and could not be written."""
        with self._lock:
            self.lost += rows

    def _wrote(self) -> None:
        if self.problem is not None:
            self._log.info("journal_written_again")
        self.problem = None


class _Writer:
    """Writes one run."""

    def __init__(self, journal: Journal, file: sqlite3.Connection) -> None:
        self._journal = journal
        self._file = file
        self._run = 0
        self._offset_s = 0.0
        self._standing = journal._standing

    def write(self) -> None:
        """Write until the journal stops, or rows were lost."""
        self._offset_s = time.time() - time.monotonic()
        lost, pruned_s, beat_s = self._journal.lost, time.monotonic(), time.monotonic()
        members, began_s = self._journal._begin()
        gone = [(key, member) for key, (_, member) in self._standing.items() if key not in members]
        with self._file:
            self._run = (
                self._file.execute(
                    "INSERT INTO run (offset_s, began_s, seen_s, lost) VALUES (?, ?, ?, ?)",
                    (self._offset_s, began_s, began_s, lost),
                ).lastrowid
                or 0
            )
            first = [(began_s, "left", key[0], member, _GONE) for key, member in gone]
            first += [(began_s, "joined", key[0], member, _HERE) for key, member in members.items()]
            numbers = self._insert(first)
        self._stand(first, numbers)
        self._prune()
        self._journal._wrote()
        while True:
            is_last = self._journal._stopping.wait(BATCH_S)
            rows = self._journal._next()
            now = time.monotonic()
            if rows is None:
                self._journal._log.warning("journal_rows_lost", lost=self._journal.lost)
                return
            if rows or is_last or now - beat_s >= HEARTBEAT_S:
                try:
                    with self._file:
                        numbers = self._insert(rows)
                        self._beat(now, is_last=is_last)
                except Exception:
                    self._journal._lose(len(rows))
                    raise
                self._stand(rows, numbers)
                beat_s = now
            if is_last:
                return
            if now - pruned_s >= PRUNE_EVERY_S:
                self._prune()
                pruned_s = now

    def _insert(self, rows: Iterable[_Row]) -> list[int]:
        """Write rows; return their numbers."""
        numbers = []
        for mono_s, kind, handle, member, cause in rows:
            address, port = member.server_address
            facts = {name: value for name, value in asdict(cause).items() if value and name != "code"}
            row = self._file.execute(
                _INSERT,
                (
                    self._run,
                    mono_s,
                    kind,
                    handle,
                    str(address),
                    port,
                    member.protocol.name.lower(),
                    member.identifier,
                    self._journal._name_of(handle, member),
                    str(cause.code),
                    orjson.dumps(facts, default=str).decode(),
                ),
            ).lastrowid
            numbers.append(row or 0)
        return numbers

    def _stand(self, rows: Iterable[_Row], numbers: Iterable[int]) -> None:
        """Note the members of committed rows: a row that was rolled back is not written as in or out."""
        for (_, kind, handle, member, _), number in zip(rows, numbers, strict=True):
            if kind == "joined":
                self._standing[handle, member.identifier] = number, member
            elif kind == "left":
                self._standing.pop((handle, member.identifier), None)

    def _beat(self, now: float, *, is_last: bool) -> None:
        offset_s = time.time() - time.monotonic()
        if abs(offset_s - self._offset_s) > CLOCK_STEP_S:
            self._offset_s = offset_s
        self._file.execute(
            "UPDATE run SET seen_s = ?, offset_s = ?, is_ended = ? WHERE run = ?",
            (now, self._offset_s, is_last, self._run),
        )

    def _prune(self) -> None:
        """Drop rows above the age and the number; the rows of members that are in stay."""
        kept_s = time.time() - self._journal._history_s
        with self._file:
            self._file.execute("CREATE TEMP TABLE IF NOT EXISTS standing (sequence INTEGER PRIMARY KEY)")
            self._file.execute("DELETE FROM standing")
            self._file.executemany(
                "INSERT OR IGNORE INTO standing VALUES (?)", [(row,) for row, _ in self._standing.values()]
            )
            self._file.execute(
                "DELETE FROM change WHERE sequence NOT IN standing AND (sequence <= "
                "(SELECT max(sequence) FROM change) - ? OR mono_s + "
                "(SELECT offset_s FROM run WHERE run.run = change.run) < ?)",
                (MOST_ROWS, kept_s),
            )
            self._file.execute(
                "DELETE FROM run WHERE run != ? AND seen_s + offset_s < ?", (self._run, kept_s)
            )


def _opened(path: Path) -> sqlite3.Connection:
    """The file, made if it is not there. Raises sqlite3.Error, OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = sqlite3.connect(path, timeout=1.0)
    try:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        version = file.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            with file:
                file.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
            os.chmod(path, 0o640)
        elif version != FORMAT:
            raise OtherFormatError(f"its format is {version}, this version writes {FORMAT}")  # noqa: TRY301
        file.execute("SELECT 1 FROM run LIMIT 1").fetchone()
    except BaseException:
        file.close()
        raise
    return file


def _set_aside(path: Path) -> Path:
    names = (
        f"{path.name}.damaged{number}" for number in ("", *(f"-{count}" for count in range(2, MOST_DAMAGED)))
    )
    last = path.with_name(f"{path.name}.damaged-{MOST_DAMAGED}")
    aside = next((free for free in map(path.with_name, names) if not free.exists()), last)
    os.replace(path, aside)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return aside


class JournalReader:
    """Reads the file, whether a backend writes it or not. Raises JournalError."""

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory) / FILE_NAME
        if not self.path.exists():
            raise JournalError(
                f"{self.path}: there is no journal: no backend has run with this [state] path yet"
            )
        try:
            self._file = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=1.0)
            self._file.execute("SELECT 1 FROM run LIMIT 1").fetchone()
        except sqlite3.Error as problem:
            raise self._unreadable(problem) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def runs(self) -> list[JournalRun]:
        """Every run, the oldest first."""
        rows = self._rows(
            "SELECT run, began_s + offset_s, seen_s + offset_s, is_ended, lost FROM run ORDER BY run"
        )
        return [
            JournalRun(run, began_s, seen_s, bool(ended), lost) for run, began_s, seen_s, ended, lost in rows
        ]

    def after(self, sequence: int, limit: int) -> list[JournalRow]:
        """The rows after this number, the oldest first, at most `limit`: a cursor for whoever follows."""
        return list(self._select(f"{_SELECT} WHERE sequence > ? ORDER BY sequence LIMIT ?", sequence, limit))

    def since(
        self,
        since_s: float,
        handles: Collection[str] | None = None,
        server: tuple[str, int] | None = None,
    ) -> Iterator[JournalRow]:
        """Yield the rows from a moment on, as they are read, of these pool handles, or all, and of the server
        at this address and port, or all; the oldest first.

        The rows that tell the state at that moment come before them: the last one of each member that was in,
        and the last one of each server that was out. SQLite finds them, in a tenth of the time that it would
        take to read all rows here.
        """
        wanted = ""
        values: tuple[str | int, ...] = ()
        if handles is not None:
            wanted = f" AND handle IN ({', '.join('?' * len(handles))})"
            values = (*handles,)
        if server is not None:
            wanted += " AND address = ? AND port = ?"
            values += server
        first = self._rows(
            "SELECT coalesce(min(sequence), (SELECT max(sequence) + 1 FROM change), 0)"
            " FROM change JOIN run USING (run) WHERE mono_s + offset_s >= ?",
            since_s,
        )[0][0]
        before = self._select(
            f"{_SELECT_LAST} WHERE sequence < ? AND kind != 'examined'{wanted}"
            " GROUP BY handle, address, port, identifier ORDER BY newest",
            *(first, *values),
        )
        yield from _standing(list(before))
        yield from self._select(f"{_SELECT} WHERE sequence >= ?{wanted} ORDER BY sequence", first, *values)

    def last(self) -> int:
        """The number of the last row; 0 if there is none."""
        return int(self._rows("SELECT coalesce(max(sequence), 0) FROM change")[0][0])

    def inside(self, sequence: int) -> set[tuple[str, str, int, int]]:
        """Handle, address, port and identifier of the members that were in at this row."""
        rows = self._rows(
            "SELECT handle, address, port, identifier, kind, max(sequence) FROM change"
            " WHERE sequence <= ? AND kind != 'examined' GROUP BY handle, address, port, identifier",
            sequence,
        )
        return {(row[0], row[1], row[2], row[3]) for row in rows if row[4] != "left"}

    def _select(self, query: str, *values: float | str) -> Iterator[JournalRow]:
        try:
            yield from map(JournalRow._make, self._file.execute(query, values))
        except sqlite3.Error as problem:
            raise self._unreadable(problem) from None

    def _rows(self, query: str, *values: float) -> list[tuple[Any, ...]]:
        try:
            return self._file.execute(query, values).fetchall()
        except sqlite3.Error as problem:
            raise self._unreadable(problem) from None

    def _unreadable(self, problem: sqlite3.Error) -> JournalError:
        return JournalError(f"{self.path}: the journal can't be read: {problem}")


def _standing(newest: Sequence[JournalRow]) -> list[JournalRow]:
    """The rows, of the last ones of members, that tell who is in, or who left a server last."""
    last = {(row.handle, row.address, row.port): row.sequence for row in newest}
    return [
        row for row in newest if row.kind != "left" or row.sequence == last[row.handle, row.address, row.port]
    ]
