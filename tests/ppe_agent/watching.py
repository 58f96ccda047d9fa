"""Runs one check and keeps what it told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from daemon_kit.finding import Finding
from ppe_agent.checks.base import Check, CheckState, RiseFall, Timing

from tests.support.waiting import until_async

TIMING = Timing(interval_ms=250, timeout_ms=250, fall=2, rise=2)
PATIENCE_S = 15  # a broken check waits for ever


class Watcher:
    """Runs a check and keeps what it told."""

    def __init__(self, timing: Timing = TIMING) -> None:
        self.machine = RiseFall(timing.fall, timing.rise)
        self.results: list[Finding] = []

    def report(self, result: Finding) -> bool:
        self.results.append(result)
        self.machine.report(result.life)
        return self.machine.try_soon

    @property
    def last(self) -> str:
        return self.results[-1].words

    async def until(self, condition: Callable[[], bool]) -> None:
        await until_async(condition, PATIENCE_S, lambda: f"it told {self.results[-5:]}")

    async def until_state(self, state: CheckState) -> None:
        await self.until(lambda: self.machine.state is state)


@contextlib.asynccontextmanager
async def watching(check: Check) -> AsyncIterator[Watcher]:
    watcher = Watcher()
    task = asyncio.create_task(check.run(watcher.report))
    try:
        yield watcher
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
