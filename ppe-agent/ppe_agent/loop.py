"""The agent's one event loop: when it does what is done again and again, and whether it turns.

Everything runs in this one loop, the answers to the registrar's keep-alives too. If it stalls, they stop, and
the registrar takes the servers out: nothing vouches for servers that nobody watches. For that reason no part
of the agent answers anybody from a thread.

Repeated work is done at the same moments, so that the agent wakes up less often.
"""

import asyncio
import time
from typing import Final

from daemon_kit import notify
from daemon_kit.logs import get_logger

from ppe_agent.status_model import LoopStatus


def until_next_s(interval_s: float, now: float) -> float:
    """Return the seconds from `now` to the next multiple of `interval_s`; never less than half of it.

    Work of every half second is so done in one go, and none of it twice in a row.
    """
    wait_s = interval_s - now % interval_s
    return wait_s if wait_s >= interval_s / 2 else wait_s + interval_s


async def next_moment(interval_s: float) -> None:
    """Wait for the next multiple of `interval_s` on the monotonic clock."""
    await asyncio.sleep(until_next_s(interval_s, time.monotonic()))


_INTERVAL_S: Final = 0.5
_STALL_S: Final = 0.5


class LoopWatch:
    """Measures how late the loop is, twice a second."""

    def __init__(self) -> None:
        self.lag_s = 0.0
        """How late the loop was when last measured."""
        self.stall_count = 0
        """How often it was later than half a second."""
        self.longest_stall_s = 0.0

    async def run(self) -> None:
        """Measure for ever."""
        log = get_logger("loop")
        watchdog_s = notify.watchdog_interval_s()
        told_s = time.monotonic()
        while True:
            began_s = time.monotonic()
            interval_s = until_next_s(min(_INTERVAL_S, watchdog_s or _INTERVAL_S), began_s)
            await asyncio.sleep(interval_s)
            now = time.monotonic()
            self.lag_s = max(0.0, now - began_s - interval_s)
            if self.lag_s > _STALL_S:
                self.stall_count += 1
                self.longest_stall_s = max(self.longest_stall_s, self.lag_s)
                log.warning("event_loop_stalled", for_s=round(self.lag_s, 3))
            if watchdog_s is not None and now - told_s >= watchdog_s / 2:
                notify.alive()
                told_s = now

    def describe(self) -> LoopStatus:
        """Return what was measured."""
        return {
            "lag_ms": round(self.lag_s * 1000, 3),
            "stall_count": self.stall_count,
            "longest_stall_ms": round(self.longest_stall_s * 1000, 3),
        }
