"""How tests know the machine's part in a delay, and how much of a core a process takes.

The machine may give its cores to others for seconds, or half of the time.
"""

import os
import threading
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rspdns_lab.net.processes import processor_s

TICK_S = 0.05
LONG_S = 0.3
"""A process that did not run for this time can't tell whether its test object was late, or it was itself."""
PRESSURE = Path("/proc/pressure/cpu")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Stall(NamedTuple):
    """A moment at which this process was due and did not run; seconds, monotonic."""

    ended_s: float
    lasted_s: float


class StallWatch:
    """Notices from now on, in a thread, when this process did not run."""

    def __init__(self) -> None:
        self._stalls: list[Stall] = []
        threading.Thread(target=self._watch, name="stalls", daemon=True).start()

    def lasted_s(self, mark: "Mark") -> list[float]:
        """Return how long each stall since then was."""
        return [stall.lasted_s for stall in self._stalls if stall.ended_s >= mark.at_s]

    def _watch(self) -> None:
        while True:
            began_s, worked_s = time.monotonic(), time.process_time()
            time.sleep(TICK_S)
            late_s = time.monotonic() - began_s - TICK_S
            # Held up by a thread of this process, it was not the machine that stood still.
            late_s -= time.process_time() - worked_s
            if late_s >= LONG_S:
                self._stalls.append(Stall(time.monotonic(), late_s))


@cache
def watch() -> StallWatch:
    """Return the watch of this process, begun when it is first asked for."""
    return StallWatch()


class Mark(NamedTuple):
    """A moment: the ticks that others had taken from the cores, how long a program had waited for a core."""

    at_s: float
    stolen: int
    waited_s: float

    @classmethod
    def now(cls) -> "Mark":
        """Return the present one."""
        watch()
        stolen = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])
        return cls(time.monotonic(), stolen, _waited_s())

    def ran_s(self) -> float:
        """Return how long ago it was, without the time in which the machine had too little to give.

        By this a bound is judged alike on a quiet machine and on a busy one. At least a tenth of what passed.
        """
        passed_s = time.monotonic() - self.at_s
        return max(passed_s - self.lacked_s(), passed_s / 10)

    def lacked_s(self) -> float:
        """Return how long since then a program waited for a processor, or got none at all."""
        now = Mark.now()
        counted_s = now.waited_s - self.waited_s + (now.stolen - self.stolen) / TICKS_PER_S
        return max(counted_s, sum(watch().lasted_s(self)))


def _waited_s() -> float:
    """How long at least one program has waited for a processor so far; 0 where the kernel doesn't tell."""
    try:
        return int(PRESSURE.read_text().split("total=", 1)[1].split()[0]) / 1e6
    except (OSError, IndexError):
        return 0.0


class Deadline:
    """Over `limit_s` of `Mark.ran_s()` from now on."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s, self._mark = limit_s, Mark.now()

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return time.monotonic() - self._mark.at_s > self._limit_s and self._mark.ran_s() > self._limit_s


def share_of_a_core(pid: int, time_s: float) -> float:
    """Return the share of a core that a process takes during the next `time_s`."""
    began_s, used_s = time.monotonic(), processor_s(pid)
    time.sleep(time_s)
    return (processor_s(pid) - used_s) / (time.monotonic() - began_s)
