"""Keeps the last-known-good file up to date, and gives it to the belief when the backend starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from daemon_kit.logs import get_logger

from pool_user import memory as last_known_good
from pool_user.belief import Belief
from pool_user.views import PoolView

AFTER_A_CHANGE_S = 0.2
"""Only then is it written: a disk that is busy holds up the log too, and the change is to reach DNS first."""
AT_MOST_EVERY_S = 1.0
AT_LEAST_EVERY_S = 10.0
"""So often the file is written anew although nothing changed: it tells that a registrar still vouches."""


class LastKnownGood:
    """The file in `directory`. Trouble with it is a warning, never the end: the next write may succeed."""

    def __init__(
        self,
        directory: str | Path,
        max_stale_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.problem: str | None = None
        """Why the file could not be read or written the last time, for status; None if all is well."""
        self._directory = Path(directory)
        self._max_stale_s = max_stale_s
        self._clock = clock
        self._wall_clock = wall_clock
        self._views: Mapping[str, PoolView] = {}
        self._encoded = last_known_good.Encoded()
        self._news = asyncio.Event()
        self._log = get_logger("last_known_good")

    def load_into(self, belief: Belief) -> int:
        """Give the file's pools to the belief; return how many. A damaged file is refused with a warning."""
        now = self._clock()
        try:
            pools = last_known_good.load(self._directory, now, self._wall_clock(), self._max_stale_s)
        except last_known_good.DamagedFileError as problem:
            self.problem = str(problem)
            self._log.warning("last_known_good_refused", problem=self.problem)
            return 0
        for pool in pools:
            belief.remember(pool.handle, pool.members, pool.recent, pool.stale_since_s, now)
        if pools:
            self._log.info("last_known_good_loaded", pools=len(pools))
        return len(pools)

    def changed(self, views: Mapping[str, PoolView]) -> None:
        """Take the latest views; they are written by and by."""
        self._views = views
        self._news.set()

    async def run(self) -> None:
        """Write when something changed, at most once a second, and at least every 10 s; until cancelled."""
        while True:
            try:
                async with asyncio.timeout(AT_LEAST_EVERY_S):
                    await self._news.wait()
            except TimeoutError:
                if all(view.stale_since_s is not None for view in self._views.values()):
                    continue
            await asyncio.sleep(AFTER_A_CHANGE_S)
            self._news.clear()
            await asyncio.to_thread(self.save_now)
            await asyncio.sleep(AT_MOST_EVERY_S)

    def save_now(self) -> bool:
        """Write the latest views; return False, with a warning, when that fails. The old file is intact
        then."""
        views = self._views
        if not any(view.known for view in views.values()):
            return True
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            now, wall_s = self._clock(), self._wall_clock()
            last_known_good.save(self._directory, last_known_good.encode(views, now, wall_s, self._encoded))
        except OSError as problem:
            words = (
                f"{self._directory / last_known_good.FILE_NAME}: cannot be written: {problem.strerror}. "
                "Answers go on; after a restart of the backend they would come from the older file"
            )
            if words != self.problem:
                self._log.warning("last_known_good_not_saved", problem=words)
            self.problem = words
            return False
        self.problem = None
        return True
