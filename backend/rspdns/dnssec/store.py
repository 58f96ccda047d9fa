"""Keys, metadata and TSIG keys of signed zones: what `pdnsutil` has us keep, in a SQLite file.

Everything is read once and answered from memory; only changes touch the file, in a thread of their own and
durably before they are acknowledged. The file is made with the first change, readable by its owner alone: it
holds private keys.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

FILE_NAME = "dnssec.sqlite3"
MODE = 0o600
MAX_KEYS = 64
"""The most keys of one zone."""
MAX_VALUES = 256
"""The most values of one kind of metadata of one zone."""
MAX_KINDS = 64
MAX_TSIG_KEYS = 1000
MAX_TEXT = 32 * 1024
"""Characters of a key or a value."""
_VERSION = 1
_SCHEMA = """
CREATE TABLE keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    zone TEXT NOT NULL,
    flags INTEGER NOT NULL,
    active INTEGER NOT NULL,
    published INTEGER NOT NULL,
    content TEXT NOT NULL
);
CREATE TABLE metadata (zone TEXT NOT NULL, kind TEXT NOT NULL, place INTEGER NOT NULL, value TEXT NOT NULL);
CREATE UNIQUE INDEX metadata_place ON metadata (zone, kind, place);
CREATE TABLE tsig (name TEXT PRIMARY KEY, algorithm TEXT NOT NULL, content TEXT NOT NULL);
"""


class WriteRefused(Exception):  # noqa: N818 - not an error of the program
    """A change that is not made; the message says why."""


@dataclass(frozen=True, slots=True)
class DomainKey:
    """A signing key. `content` is the private key as PowerDNS writes it."""

    id: int
    flags: int
    active: bool
    published: bool
    content: str


@dataclass(frozen=True, slots=True)
class TsigKey:
    """A key for transfers. `algorithm` as a name ("hmac-sha256"), `content` in base 64."""

    name: str
    algorithm: str
    content: str


Statement = tuple[str, Sequence[object]]


class DnssecStore:
    """The keys and metadata that are kept in `directory`.

    `changed` is called with the zone after each change of its keys or metadata. Zones are named in lower case
    without the final dot. Raises FatalError for a file that can't be used: to go on without its keys would
    make every signed zone bogus.
    """

    def __init__(self, directory: str | Path, changed: Callable[[str], None] = lambda zone: None) -> None:
        self.path = Path(directory) / FILE_NAME
        self.changed = changed
        self._keys: dict[str, dict[int, DomainKey]] = {}
        self._metadata: dict[str, dict[str, tuple[str, ...]]] = {}
        self._former: dict[tuple[str, str], tuple[tuple[str, ...], float]] = {}
        """By zone and kind: metadata as they were, and when they were changed."""
        self.clock = time.monotonic
        self._tsig: dict[str, TsigKey] = {}
        self._database: sqlite3.Connection | None = None
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "dnssec-store")
        if self.path.exists():
            self._open()

    def close(self) -> None:
        """Finish what is being written and close the file."""
        self._thread.shutdown()
        if self._database is not None:
            self._database.close()
            self._database = None

    def keys(self, zone: str) -> tuple[DomainKey, ...]:
        """The keys of a zone."""
        return tuple(self._keys.get(zone, {}).values())

    def metadata(self, zone: str) -> Mapping[str, tuple[str, ...]]:
        """The metadata of a zone by kind."""
        return self._metadata.get(zone, {})

    def former(self, zone: str, kind: str, since_s: float) -> tuple[str, ...]:
        """The metadata of one kind before their last change; none if that change was before `since_s`."""
        values, changed_at_s = self._former.get((zone, kind), ((), since_s))
        return values if changed_at_s > since_s else ()

    def tsig(self, name: str) -> TsigKey | None:
        """A TSIG key by its name."""
        return self._tsig.get(name)

    def tsig_keys(self) -> tuple[TsigKey, ...]:
        """Every TSIG key."""
        return tuple(self._tsig.values())

    def signed_zones(self) -> tuple[str, ...]:
        """The zones with an active key."""
        return tuple(zone for zone, keys in self._keys.items() if any(key.active for key in keys.values()))

    async def add_key(self, zone: str, flags: int, active: bool, published: bool, content: str) -> int:
        """Keep a new key; return its identifier, above 0 and never used again. Raises WriteRefused."""
        _check_text(content)
        async with self._turn:
            if len(self._keys.get(zone, {})) >= MAX_KEYS:
                raise WriteRefused(f"a zone has at most {MAX_KEYS} keys")
            row = (zone, flags, active, published, content)
            sql = "INSERT INTO keys (zone, flags, active, published, content) VALUES (?, ?, ?, ?, ?)"
            identifier = await self._write((sql, row))
            key = DomainKey(identifier, flags, active, published, content)
            self._keys.setdefault(zone, {})[identifier] = key
        self.changed(zone)
        return identifier

    async def remove_key(self, zone: str, identifier: int) -> bool:
        """Forget a key; False when there is none."""
        async with self._turn:
            if identifier not in self._keys.get(zone, {}):
                return False
            await self._write(("DELETE FROM keys WHERE id = ?", (identifier,)))
            del self._keys[zone][identifier]
        self.changed(zone)
        return True

    async def set_key(
        self, zone: str, identifier: int, *, active: bool | None = None, published: bool | None = None
    ) -> bool:
        """Set what is given of a key; False when there is none."""
        async with self._turn:
            key = self._keys.get(zone, {}).get(identifier)
            if key is None:
                return False
            new = replace(
                key,
                active=key.active if active is None else active,
                published=key.published if published is None else published,
            )
            sql = "UPDATE keys SET active = ?, published = ? WHERE id = ?"
            await self._write((sql, (new.active, new.published, identifier)))
            self._keys[zone][identifier] = new
        self.changed(zone)
        return True

    async def set_metadata(self, zone: str, kind: str, values: Sequence[str]) -> None:
        """Replace what a zone has of one kind; no values: remove it. Raises WriteRefused."""
        if len(values) > MAX_VALUES:
            raise WriteRefused(f"at most {MAX_VALUES} values of one kind")
        for text in (kind, *values):
            _check_text(text)
        async with self._turn:
            if len(self._metadata.get(zone, {})) >= MAX_KINDS and kind not in self._metadata[zone]:
                raise WriteRefused(f"a zone has at most {MAX_KINDS} kinds of metadata")
            insert = "INSERT INTO metadata (zone, kind, place, value) VALUES (?, ?, ?, ?)"
            await self._write(
                ("DELETE FROM metadata WHERE zone = ? AND kind = ?", (zone, kind)),
                *((insert, (zone, kind, position, value)) for position, value in enumerate(values)),
            )
            kinds = self._metadata.setdefault(zone, {})
            if kinds.get(kind, ()) != tuple(values):
                self._former[zone, kind] = kinds.get(kind, ()), self.clock()
            if values:
                kinds[kind] = tuple(values)
            else:
                kinds.pop(kind, None)
        self.changed(zone)

    async def set_tsig(self, name: str, algorithm: str, content: str) -> None:
        """Keep a TSIG key, instead of one of this name. Raises WriteRefused."""
        for text in (algorithm, content):
            _check_text(text)
        async with self._turn:
            if len(self._tsig) >= MAX_TSIG_KEYS and name not in self._tsig:
                raise WriteRefused(f"at most {MAX_TSIG_KEYS} TSIG keys")
            sql = "INSERT OR REPLACE INTO tsig (name, algorithm, content) VALUES (?, ?, ?)"
            await self._write((sql, (name, algorithm, content)))
            self._tsig[name] = TsigKey(name, algorithm, content)

    async def remove_tsig(self, name: str) -> bool:
        """Forget a TSIG key; False when there is none."""
        async with self._turn:
            if name not in self._tsig:
                return False
            await self._write(("DELETE FROM tsig WHERE name = ?", (name,)))
            del self._tsig[name]
        return True

    async def _write(self, *statements: Statement) -> int:
        """Run them in one transaction; return the last row's identifier. Raises WriteRefused."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, statements)
        except (sqlite3.Error, OSError, FatalError) as error:
            get_logger("dnssec").error("not_kept", file=str(self.path), problem=str(error))
            raise WriteRefused(f"{self.path} can't be written: {error}") from None

    def _run(self, statements: Sequence[Statement]) -> int:
        if self._database is None:
            self._make()
        database = self._database
        assert database is not None  # noqa: S101 - just made
        cursor = database.cursor()
        with database:
            for sql, values in statements:
                cursor.execute(sql, values)
        return cursor.lastrowid or 0

    def _make(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # SQLite gives its journal the permissions of the file.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, MODE))
        self._open()

    def _open(self) -> None:
        try:
            self._check_file()
            # Used by one thread at a time: by this one before anything is written, then by the writer's.
            self._database = sqlite3.connect(self.path, check_same_thread=False)
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute("PRAGMA secure_delete = ON")
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
            elif version != _VERSION:
                raise FatalError(f"{self.path}: made by a newer version of this program")
            self._load(self._database)
        except (sqlite3.Error, OSError, ValueError) as error:
            raise FatalError(
                f"{self.path}: the keys of signed zones can't be read: {error}; restore the file, or move it "
                "away to start without keys (signed zones are bogus then until their DS records are gone)"
            ) from None

    def _check_file(self) -> None:
        state = self.path.lstat()
        if not stat.S_ISREG(state.st_mode):
            raise OSError("it is no file")
        if state.st_mode & 0o077:
            get_logger("dnssec").warning(
                "private_keys_were_readable", file=str(self.path), mode=oct(state.st_mode)
            )
            self.path.chmod(MODE)

    def _load(self, database: sqlite3.Connection) -> None:
        rows: Any
        rows = database.execute("SELECT id, zone, flags, active, published, content FROM keys ORDER BY id")
        for identifier, zone, flags, active, published, content in rows:
            key = DomainKey(identifier, flags, bool(active), bool(published), content)
            self._keys.setdefault(zone, {})[identifier] = key
        for zone, kind, value in database.execute("SELECT zone, kind, value FROM metadata ORDER BY place"):
            kinds = self._metadata.setdefault(zone, {})
            kinds[kind] = (*kinds.get(kind, ()), value)
        for name, algorithm, content in database.execute("SELECT name, algorithm, content FROM tsig"):
            self._tsig[name] = TsigKey(name, algorithm, content)


def _check_text(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise WriteRefused(f"longer than {MAX_TEXT} characters")
    if not text.isprintable() and not text.replace("\n", "").isprintable():
        raise WriteRefused("has characters that are not printable")
