"""The common part of all checks: the finding of one attempt, and when attempts change the state (rise and
fall).

Pure but for `PeriodicCheck`, the loop of the checks that ask again and again. States and what an attempt does
to them:

    state    ALIVE                         any other                     REFUSED
    UNKNOWN  UP after `rise` in a row      DOWN after `fall` in a row    DOWN
    UP       stays, failures forgotten     DOWN after `fall` in a row    DOWN
    DOWN     UP after `rise` in a row      stays, successes forgotten    stays, successes forgotten

REFUSED is beyond doubt (nothing listens there): waiting for `fall` would only lose time. UNKNOWN is a failure
here: a sidecar vouches for nothing that it does not see alive.
"""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from daemon_kit.finding import Finding, Life

FAST_RECHECK_MS = 50
STALL_MS = 250
"""An attempt that took so much longer than its timeout says how slow this agent was, not the server."""
_STALLS_IN_A_ROW = 2


class CheckState(Enum):
    """The state of a check; UNKNOWN, at the start, counts as not up."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True)
class Timing:
    """When a check tries: every `interval_ms`, each try at most `timeout_ms`; `fall` and `rise` as above.

    `jitter` (0..1): each interval is shorter by a random share of up to this, so that many agents, or many
    checks of one, don't ask in step. `fast_ms`: the interval while the state may be about to change.
    """

    interval_ms: int
    timeout_ms: int
    fall: int
    rise: int
    jitter: float = 0.0
    fast_ms: int = FAST_RECHECK_MS


class RiseFall:
    """The state of one check, moved by its attempts."""

    def __init__(self, fall: int, rise: int, state: CheckState = CheckState.UNKNOWN) -> None:
        self._fall = fall
        self._rise = rise
        self.state = state
        self.run = 0  # attempts in a row that speak against `state`
        self._last = Life.ALIVE

    @property
    def try_soon(self) -> bool:
        """Tell whether the next attempt should not wait for the interval.

        So it is while the last attempts spoke against the state, and while nothing listens: that costs
        neither side anything, and a server that starts is in its pool the sooner.
        """
        return self.run > 0 or self.state is CheckState.UNKNOWN or self._last is Life.REFUSED

    def report(self, life: Life) -> bool:
        """Take in one attempt; return whether the state changed."""
        is_alive = life is Life.ALIVE
        same = self.run > 0 and (self._last is Life.ALIVE) == is_alive
        self._last = life
        if self.state is (CheckState.UP if is_alive else CheckState.DOWN):
            self.run = 0
            return False
        if life is not Life.REFUSED:
            self.run = self.run + 1 if same else 1
            if self.run < (self._rise if is_alive else self._fall):
                return False
        self.state = CheckState.UP if is_alive else CheckState.DOWN
        self.run = 0
        return True


def pause_ms(timing: Timing, soon: bool, draw: float = 0.0) -> float:
    """Return how long to wait from the beginning of one attempt to that of the next.

    `draw` (0..1) is the luck of this interval: it is shortened by so much of the jitter.
    """
    whole = min(timing.interval_ms, timing.fast_ms) if soon else timing.interval_ms
    return whole * (1 - timing.jitter * draw)


Report = Callable[[Finding], bool]
"""Takes a finding; returns whether to try again soon."""


class Check(Protocol):
    """One running check: `kind` is its type in agent.toml, `target` what it looks at, in a few words."""

    kind: str
    target: str

    async def run(self, report: Report) -> None:
        """Try for ever. `report` takes each finding and returns whether to try again soon."""


class PeriodicCheck(ABC):
    """A check that makes one attempt after the other, at once after `hurry()`."""

    kind: str

    def __init__(self, target: str, timing: Timing) -> None:
        self.target = target
        self._timing = timing
        self._is_hurried = False
        self._pausing: asyncio.Future[None] | None = None

    @abstractmethod
    async def attempt(self) -> Finding:
        """Try once, for at most the timeout."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Let go of what is held between attempts."""

    def hurry(self) -> None:
        """Have the next attempt made now: something was seen that may mean death."""
        self._is_hurried = True
        if self._pausing is not None:
            _wake(self._pausing)

    async def run(self, report: Report) -> None:
        """Try, report, wait, for ever."""
        stalls = 0
        try:
            while True:
                started_s = time.monotonic()
                self._is_hurried = False
                finding = await self.attempt()
                took_ms = (time.monotonic() - started_s) * 1000
                is_failure = finding.life not in (Life.ALIVE, Life.REFUSED)
                is_stall = is_failure and took_ms > self._timing.timeout_ms + STALL_MS
                stalls = stalls + 1 if is_stall else 0
                if 0 < stalls <= _STALLS_IN_A_ROW:
                    continue  # the answer may have been there, unread, when the time was over
                soon = report(finding)
                wait_s = pause_ms(self._timing, soon, random.random()) / 1000  # noqa: S311 - no secret
                await self._pause(started_s + wait_s - time.monotonic())
        finally:
            await self.close()

    async def _pause(self, time_s: float) -> None:
        """Wait for `time_s`, or until `hurry()` is called, or was since the attempt began."""
        if time_s <= 0 or self._is_hurried:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        # A bare future: asyncio.timeout() costs several times as much, four times a second.
        self._pausing = loop.create_future()
        timer = loop.call_later(time_s, _wake, self._pausing)
        try:
            await self._pausing
        finally:
            timer.cancel()
            self._pausing = None


def _wake(pausing: asyncio.Future[None]) -> None:
    if not pausing.done():
        pausing.set_result(None)
