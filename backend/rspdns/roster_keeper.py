"""Keeps the roster in the state directory, and tells what the servers are called."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from daemon_kit.logs import get_logger
from daemon_kit.regular_file import open_regular
from pool_user import BeliefEvent, Member, memory

from rspdns.roster import Place, Roster, Seen, is_called, names_by_handle, place_of
from rspdns.zones.zone import Zone

FILE_NAME = "roster.json"
MAX_BYTES = 64 * 1024 * 1024
AT_MOST_EVERY_S = 2.0
AT_LEAST_EVERY_S = 60.0
"""So exactly is known, after a crash, until when somebody was in."""


class RosterKeeper:
    """The roster of one backend. Trouble with its file is a warning: nothing but the memory depends on it."""

    def __init__(self, directory: str | Path, zones: Iterable[Zone]) -> None:
        self.roster = Roster()
        self.problem: str | None = None
        """Why the file could not be read or written, for status; None if all is well."""
        self._path = Path(directory) / FILE_NAME
        self._names: dict[str, dict[Place, str]] = {}
        self._news = asyncio.Event()
        self._log = get_logger("roster")
        self.set_zones(zones)

    def set_zones(self, zones: Iterable[Zone]) -> None:
        """Take the pools and names of these zones. Handles that none of them has are forgotten."""
        pools = [pool.config for zone in zones for site in zone.sites for pool in site.pools]
        self._names = names_by_handle(pools)
        self.roster.keep(self._names)

    def load(self) -> None:
        """Read the file."""
        try:
            with open_regular(self._path) as file:
                data = file.read(MAX_BYTES + 1)
            self.roster = Roster.decode(data)
        except FileNotFoundError:
            return
        except OSError as problem:
            self.problem = f"{self._path}: cannot be read: {problem.strerror}"
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            words = "not used, since it is damaged: who was in before the restart is not known"
            self.problem = f"{self._path}: {words} ({problem})"
        if self.problem is not None:
            self._log.warning("roster_not_read", problem=self.problem)
        self.roster.keep(self._names)

    def happened(self, events: Sequence[BeliefEvent]) -> None:
        """Note who came and went."""
        at_s = time.time()
        for event in events:
            if event.member is None:
                continue
            if event.kind == "joined":
                self.roster.joined(event.handle, event.member)
            elif event.kind == "left":
                self.roster.left(event.handle, event.member, event.words, at_s)
            self._news.set()

    def examined(self, handle: str, member: Member, found: str, look_at: str) -> None:
        """See `Roster.examined()`."""
        self.roster.examined(handle, member, found, look_at)
        self._news.set()

    def name_of(self, handle: str, member: Member) -> str | None:
        """What people call a member; None when `expect` does not name it."""
        return self.name_at(handle, place_of(member))

    def name_at(self, handle: str, place: Place) -> str | None:
        """What people call the server at an address and port."""
        return self._names.get(handle, {}).get(place)

    def forget(self, wanted: Sequence[str], handles: Sequence[str], *, everybody: bool) -> list[str]:
        """Forget the missing servers that are `wanted`, or all, under these handles; return them in words.

        Those that `expect` names stay: they are missing until they are taken out there.
        """

        def is_wanted(handle: str, one: Seen) -> bool:
            if handle not in handles or self.name_at(handle, one.place) is not None:
                return False
            return everybody or is_called(wanted, one, None)

        gone = self.roster.forget(is_wanted)
        self._news.set()
        return [f"{one.address} port {one.port} of {handle}" for handle, one in gone]

    def expected(self, wanted: Sequence[str], handles: Sequence[str]) -> list[str]:
        """The names of those `wanted` that `expect` names under these handles."""
        found = {
            name
            for handle in handles
            for place, name in self._names.get(handle, {}).items()
            if is_called(wanted, self._seen(handle, place), name)
        }
        return sorted(found)

    def _seen(self, handle: str, place: Place) -> Seen:
        """What is remembered of a server that is out; of one never seen, its address and port."""
        return self.roster.absent.get(handle, {}).get(place) or Seen(str(place[0]), place[1], 0)

    async def run(self) -> None:
        """Write the file after changes, and now and then; until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AT_LEAST_EVERY_S):
                    await self._news.wait()
            self._news.clear()
            data = self._encoded()
            await asyncio.to_thread(self._write, data)
            await asyncio.sleep(AT_MOST_EVERY_S)

    def save_now(self) -> None:
        """Write the file."""
        self._write(self._encoded())

    def _encoded(self) -> bytes:
        return self.roster.encode(time.time())

    def _write(self, data: bytes) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            memory.save(self._path.parent, data, FILE_NAME)
        except OSError as problem:
            after = "after a restart it is not known who is missing"
            words = f"{self._path}: cannot be written: {problem.strerror}; {after}"
            if words != self.problem:
                self._log.warning("roster_not_saved", problem=words)
            self.problem = words
        else:
            self.problem = None
