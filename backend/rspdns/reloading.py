"""Reloads, one at a time: accepted at once, with progress while one runs, and its result after.

The service reads and takes over the configuration; this module owns only which reload is where.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from daemon_kit.control import ControlError
from daemon_kit.logs import get_logger

from rspdns.status.model import ReloadStatus
from rspdns.zones.loading import Progress

WAIT_S = 3.0
"""Time after which a request for a reload is answered at the latest: with the result, or that it is
running."""
_KEPT = 16
Result = dict[str, Any]


@dataclass(eq=False)
class Reload:
    """One reload. `force`: also when a pool would lose its last member. Times are monotonic."""

    number: int
    force: bool
    by_signal: bool
    began_s: float
    progress: Progress = field(default_factory=Progress)
    ended_s: float | None = None
    problem: str = ""


class Reloads:
    """Does `work` for each reload that is begun, one after the other. It may raise ControlError."""

    def __init__(
        self, work: Callable[[Reload], Awaitable[Result]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work = work
        self._clock = clock
        self._turn = asyncio.Lock()
        self._tasks: dict[int, asyncio.Task[Result]] = {}
        self._number = 0
        self.last: Reload | None = None
        """The one that runs, or ran last."""

    def begin(self, *, force: bool = False, by_signal: bool = False) -> int:
        """Begin a reload when the one before is done; return its number. Raises ControlError."""
        if sum(not task.done() for task in self._tasks.values()) >= _KEPT:
            raise ControlError(f"{_KEPT} reloads are waiting already")
        while len(self._tasks) >= _KEPT:
            del self._tasks[next(number for number, task in self._tasks.items() if task.done())]
        self._number += 1
        reload = Reload(self._number, force, by_signal, self._clock())
        task = asyncio.get_running_loop().create_task(self._run(reload))
        task.add_done_callback(_look_at)
        self._tasks[reload.number] = task
        return reload.number

    async def result(self, number: int, wait_s: float | None = None) -> Result | None:
        """The result of a reload; None if it is still running after `wait_s`. Raises ControlError."""
        task = self._tasks.get(number)
        if task is None:
            raise ControlError(f"there is no reload {number}; was the backend restarted?")
        await asyncio.wait((task,), timeout=wait_s)
        return task.result() if task.done() else None

    async def close(self) -> None:
        """End what is running."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def status(self, now: float) -> ReloadStatus | None:
        """The last reload as a status shows it; None when there was none."""
        last = self.last
        if last is None:
            return None
        return ReloadStatus(
            state="running" if last.ended_s is None else "refused" if last.problem else "done",
            since_s=round(now - (last.began_s if last.ended_s is None else last.ended_s), 3),
            files=last.progress.files,
            of_files=last.progress.of_files,
            records=last.progress.records,
            problem=last.problem or None,
        )

    async def _run(self, reload: Reload) -> Result:
        async with self._turn:
            self.last = reload
            reload.began_s = self._clock()
            try:
                return await self._work(reload)
            except ControlError as problem:
                reload.problem = str(problem)
                raise
            except Exception:
                get_logger("backend").exception("reload_failed")
                reload.problem = "reload failed inside the service; its log says why"
                raise ControlError(reload.problem) from None
            finally:
                reload.ended_s = self._clock()


def _look_at(task: asyncio.Task[Result]) -> None:
    """A reload that a signal began has nobody who takes its result."""
    if not task.cancelled():
        task.exception()
