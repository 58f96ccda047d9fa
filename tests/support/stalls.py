"""Whether the machine let the tests run: it may give its cores to others for seconds, or half of the time."""

import threading
import time
from pathlib import Path
from typing import NamedTuple

TICK_S = 0.05
LONG_S = 0.3
"""Whoever did not run for so long can't tell whether what it tests was late, or itself."""
LARGE_SHARE = 0.1
"""Of what the cores would have done, given to others by the machine below (`steal` of /proc/stat)."""


class Stall(NamedTuple):
    """A moment at which this process was due and did not run; seconds, monotonic."""

    ended_s: float
    lasted_s: float


class StallWatch:
    """Notices from now on, in a thread, when this process did not run."""

    def __init__(self) -> None:
        self._stalls: list[Stall] = []
        threading.Thread(target=self._watch, name="stalls", daemon=True).start()

    def since(self, mark: "Mark") -> str:
        """Return what kept this process from running since then, in words; "" when nothing did."""
        time.sleep(2 * TICK_S)  # one that has just ended is noted by then
        longest_s = max([0.0, *(one.lasted_s for one in self._stalls if one.ended_s >= mark.at_s)])
        if longest_s >= LONG_S:
            return f"nothing ran for {longest_s:.1f} s"
        now = Mark.now()
        share = (now.stolen - mark.stolen) / max(1, now.ticks - mark.ticks)
        if share >= LARGE_SHARE:
            return f"{share:.0%} of the processor went to others"
        return ""

    def _watch(self) -> None:
        while True:
            began_s, worked_s = time.monotonic(), time.process_time()
            time.sleep(TICK_S)
            late_s = time.monotonic() - began_s - TICK_S
            # Held up by a thread of this process, it was not the machine that stood still.
            late_s -= time.process_time() - worked_s
            if late_s >= LONG_S:
                self._stalls.append(Stall(time.monotonic(), late_s))


class Mark(NamedTuple):
    """A moment, and what the cores had done until then, in ticks."""

    at_s: float
    ticks: int
    stolen: int

    @classmethod
    def now(cls) -> "Mark":
        """Return the present one."""
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        return cls(time.monotonic(), sum(fields[:8]), fields[7])
