"""Waits for what a test expects, up to a bound that leaves out what the machine kept from the test."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.stalls import Deadline

GENEROUS_S = 60.0
LONGEST_PAUSE_S = 0.2
Told = str | Path | Callable[[], str]
"""The text that a failure shows: words, the text of a log, or the result of a function."""


def until(
    condition: Callable[[], object],
    timeout_s: float = GENEROUS_S,
    told: Told = "did not happen",
    every_s: float = 0.02,
) -> None:
    """Return when `condition` holds; fail with `told` when it does not within `timeout_s`.

    A condition that runs programs is asked more rarely: the wait takes a third of a core at most.
    """
    deadline = Deadline(timeout_s)
    asked_s = time.monotonic()
    while not condition():
        assert not deadline.is_over, f"not within {timeout_s} s: {_words(told)}"
        took_s = time.monotonic() - asked_s
        time.sleep(max(every_s, min(2 * took_s, LONGEST_PAUSE_S)))
        asked_s = time.monotonic()


async def until_async(
    condition: Callable[[], object | Awaitable[object]],
    timeout_s: float = GENEROUS_S,
    told: Told = "did not happen",
    every_s: float = 0.01,
) -> None:
    """Return when `condition`, a function or a coroutine function, holds; fail as `until()` does."""
    deadline = Deadline(timeout_s)
    while True:
        holds = condition()
        if await holds if inspect.isawaitable(holds) else holds:
            return
        assert not deadline.is_over, f"not within {timeout_s} s: {_words(told)}"
        await asyncio.sleep(every_s)


def once_within(limit_s: float, attempt: Callable[[], float], attempts: int = 3) -> None:
    """Make attempts until one takes less than `limit_s`: it can, though a busy machine may hold up others."""
    took_s: list[float] = []
    while not took_s or took_s[-1] >= limit_s:
        assert len(took_s) < attempts, f"none took less than {limit_s} s: {took_s}"
        took_s.append(attempt())


def _words(told: Told) -> str:
    if isinstance(told, Path):
        return told.read_text(errors="replace")
    return told if isinstance(told, str) else told()
