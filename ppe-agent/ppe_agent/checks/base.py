"""What all checks share: what one attempt tells, and when attempts change the state (rise and fall).

Pure: no clock, no socket. States and what an attempt does to them:

    state    alive                         failed                        dead
    UNKNOWN  UP after `rise` in a row      DOWN after `fall` in a row    DOWN
    UP       stays, failures forgotten     DOWN after `fall` in a row    DOWN
    DOWN     UP after `rise` in a row      stays, successes forgotten    stays, successes forgotten

"Dead" is a failure beyond doubt (nothing listens there): waiting for `fall` would only lose time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

FAST_RECHECK_MS = 50


class Verdict(Enum):
    """What one attempt of a check tells."""

    ALIVE = "alive"
    FAILED = "failed"
    DEAD = "dead"


class CheckState(Enum):
    """What a check believes; UNKNOWN, at the start, counts as not up."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True)
class Outcome:
    """One attempt: its verdict, and what was seen in words for a person."""

    verdict: Verdict
    reason: str


def alive(reason: str) -> Outcome:
    """Return the outcome of an attempt that found the server alive."""
    return Outcome(Verdict.ALIVE, reason)


def failed(reason: str) -> Outcome:
    """Return the outcome of an attempt that failed, which may pass."""
    return Outcome(Verdict.FAILED, reason)


def dead(reason: str) -> Outcome:
    """Return the outcome of an attempt that leaves no doubt."""
    return Outcome(Verdict.DEAD, reason)


@dataclass(frozen=True)
class Timing:
    """When a check tries: every `interval_ms`, each try at most `timeout_ms`; `fall` and `rise` as above."""

    interval_ms: int
    timeout_ms: int
    fall: int
    rise: int


class RiseFall:
    """The state of one check, moved by its attempts."""

    def __init__(self, fall: int, rise: int) -> None:
        self._fall = fall
        self._rise = rise
        self.state = CheckState.UNKNOWN
        self.run = 0  # attempts in a row that speak against `state`
        self._last = Verdict.ALIVE

    @property
    def try_soon(self) -> bool:
        """Tell whether the next attempt should not wait for the interval.

        So it is while the last attempts spoke against the state, and while nothing listens: that costs
        neither side anything, and a server that starts is in its pool the sooner.
        """
        return self.run > 0 or self.state is CheckState.UNKNOWN or self._last is Verdict.DEAD

    def report(self, verdict: Verdict) -> bool:
        """Take in one attempt; return whether the state changed."""
        is_alive = verdict is Verdict.ALIVE
        same = self.run > 0 and (self._last is Verdict.ALIVE) == is_alive
        self._last = verdict
        if self.state is (CheckState.UP if is_alive else CheckState.DOWN):
            self.run = 0
            return False
        if verdict is not Verdict.DEAD:
            self.run = self.run + 1 if same else 1
            if self.run < (self._rise if is_alive else self._fall):
                return False
        self.state = CheckState.UP if is_alive else CheckState.DOWN
        self.run = 0
        return True


def pause_ms(timing: Timing, soon: bool) -> int:
    """Return how long to wait from the beginning of one attempt to that of the next."""
    return min(timing.interval_ms, FAST_RECHECK_MS) if soon else timing.interval_ms


class Check(Protocol):
    """One running check."""

    kind: str
    port: int

    async def run(self, report: Callable[[Outcome], bool]) -> None:
        """Try for ever. `report` takes each outcome and returns whether to try again soon."""
