"""Notices that the time of day was stepped.

rspregistrar's timers go by the time of day: set forward, it takes every foreign pool element and every peer
for expired at once; set back, it sends no keep-alive for as long. It has to be started again.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 0.1
SMALLEST_STEP_S: Final = 0.25
"""Half the keep-alive timeout: less changes nothing that rspregistrar decides. Slewing, as time daemons do
it, moves the clock by less than 0.0001 s between two looks."""
_LONGEST_READING_S: Final = 0.05


class ClockWatch:
    """Compares the time of day with the monotonic clock. Both are functions that return seconds."""

    def __init__(
        self, wall_s: Callable[[], float] = time.time, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s
        self._offset_s: float | None = None

    def look(self) -> float | None:
        """Return by how many seconds the time of day was stepped since the last look; None when it wasn't.

        A machine that slept counts as stepped forward: its peers did not sleep.
        """
        before_s = self._monotonic_s()
        wall_s = self._wall_s()
        if self._monotonic_s() - before_s > _LONGEST_READING_S:
            return None  # held up between the two clocks: this says nothing about either
        offset_s = wall_s - before_s
        step_s = 0.0 if self._offset_s is None else offset_s - self._offset_s
        self._offset_s = offset_s
        return step_s if abs(step_s) >= SMALLEST_STEP_S else None

    async def run(self, on_step: Callable[[float], object]) -> None:
        """Call `on_step` with the seconds of each step, until cancelled."""
        while True:
            if (step_s := self.look()) is not None:
                on_step(step_s)
            await asyncio.sleep(LOOK_EVERY_S)
