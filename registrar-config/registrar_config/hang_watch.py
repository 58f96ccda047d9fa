"""Tells a registrar that hangs from one that is slow or can't be reached.

`HangWatch` is sans-IO: `now` and what is seen in, findings out. `guard_against_hanging`, at the end, looks at
the process (proc(5)) every second, and kills a registrar that hangs, so that its supervisor starts it anew.

Two times are counted. One is how long nothing was heard from the registrar, which is asked every second. The
other is how long its event loop stood still: its main thread did not once go to sleep. A healthy one does so
at least twice a second, also when nobody speaks to it.

what a look sees                                              what follows
the last look was long ago: we, or the machine, stood still   both are reset
a debugger holds it                                           both are reset
it was heard                                                  both are reset
its loop turned                                               how long it stood still is reset
silent and still for `limit_s`                                Hung
the same, but it waits for a processor or for a disk          nothing: it is slow
silent for `limit_s`, but not still                           Unreachable, told once: it is not the registrar

Both: in a life in which it was not heard yet, after three times `limit_s`. After Hung there is no other for
`BACKOFF_S`, or registrars that hang again and again would never get to hold a handlespace.
"""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from daemon_kit.durations import duration
from structlog.typing import FilteringBoundLogger

from registrar_config.supervisor import Supervisor

# The kernel's view of a process: whether it runs, waits or was stopped


_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_FIELDS: Final = re.compile(r"^(TracerPid|voluntary_ctxt_switches):\t(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Vitals:
    """A process at one moment.

    `waits`: how often its main thread has gone to sleep; an event loop does so each time it has done its
    work. `state`: the letter of proc(5), e.g. "S" (waits), "R" (runs, or would), "D" (waits for a disk), "T"
    (stopped).
    """

    waits: int
    cpu_s: float
    state: str
    is_traced: bool = False


def read_vitals(pid: int) -> Vitals | None:
    """Return how the process `pid` is; None when there is none, or it can't be told."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        fields_of_status = dict(_FIELDS.findall(Path(f"/proc/{pid}/status").read_text()))
        return Vitals(
            waits=int(fields_of_status["voluntary_ctxt_switches"]),
            cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,  # utime, stime
            state=fields[0],
            is_traced=fields_of_status["TracerPid"] != "0",
        )
    except (OSError, LookupError, ValueError):
        return None


# The decision


LOOK_EVERY_S: Final = 1.0
LIMIT_S: Final = 10.0
"""More than `rspdns-lab chaos` freezes one for, before it wakes it."""
BACKOFF_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 3.0
_STARTING_TIMES: Final = 3
_BUSY_SHARE: Final = 0.5
_HOW: Final = {"T": "it was stopped by a signal (SIGSTOP)", "R": "it runs without end"}


@dataclass(frozen=True)
class Hung:
    """The registrar hangs; `problem` says how, in words."""

    problem: str


@dataclass(frozen=True)
class Unreachable:
    """The registrar is well, but nothing is heard from it; `problem` says so."""

    problem: str


RegistrarFault = Hung | Unreachable


class HangWatch:
    """Follows one registrar, life after life. Times are in s, of a monotonic clock."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._base_limit_s = limit_s
        self._limit_s = limit_s
        self._looked_at_s = float("-inf")
        self._heard_at_s = float("-inf")
        self._silent_since_s = 0.0
        self._still_since_s = 0.0
        self._last: Vitals | None = None
        self._cpu_before_s = 0.0
        self._is_told = False
        self._not_before_s = float("-inf")

    def started(self, now: float) -> None:
        """Take in that it was started (again)."""
        self._limit_s = _STARTING_TIMES * self._base_limit_s
        self._last, self._heard_at_s = None, now
        self._reset(now)

    def look(self, now: float, vitals: Vitals | None, heard_at_s: float | None) -> RegistrarFault | None:
        """Take in how its process is, None when that is not known, and when it was heard last."""
        paused_s, self._looked_at_s = now - self._looked_at_s, now
        before, self._last = self._last, vitals
        if heard_at_s is not None and heard_at_s > self._heard_at_s:
            self._heard_at_s = heard_at_s
            self._limit_s = self._base_limit_s
            self._reset(now)
        if vitals is None or before is None or vitals.is_traced or paused_s > _LONGEST_PAUSE_S:
            self._reset(now)
            return None
        if vitals.waits != before.waits:
            self._still_since_s, self._cpu_before_s = now, vitals.cpu_s
        if now - self._silent_since_s < self._limit_s:
            return None
        still_s = now - self._still_since_s
        if still_s >= self._limit_s:
            return self._hung(now, still_s, vitals)
        if self._is_told or still_s > 0:
            return None
        self._is_told = True
        return Unreachable(
            f"nothing was heard from it for {duration(now - self._silent_since_s)}, but it is at work and "
            "left alone: is it overloaded, or does a packet filter keep this host from its own address?"
        )

    def _hung(self, now: float, still_s: float, vitals: Vitals) -> Hung | None:
        is_starved = vitals.state == "R" and vitals.cpu_s - self._cpu_before_s < _BUSY_SHARE * still_s
        if vitals.state not in "RST" or is_starved or now < self._not_before_s:
            return None
        self._not_before_s = now + BACKOFF_S
        self._reset(now)
        how = _HOW.get(vitals.state, "it waits for something that does not come")
        return Hung(f"{how}: for {duration(still_s)} it did nothing and answered nobody")

    def _reset(self, now: float) -> None:
        self._silent_since_s = self._still_since_s = now
        self._cpu_before_s = self._last.cpu_s if self._last else 0.0
        self._is_told = False


# The doing


async def guard_against_hanging(
    supervisor: Supervisor,
    heard_at_s: Callable[[], float | None],
    log: FilteringBoundLogger,
    watch: HangWatch,
    stop: asyncio.Event,
) -> None:
    """Look at the registrar every second until `stop` is set. `heard_at_s` tells when it was heard last."""
    starts = 0
    while not stop.is_set():
        now = time.monotonic()
        pid = supervisor.pid
        if supervisor.starts != starts:
            starts = supervisor.starts
            watch.started(now)
        match watch.look(now, None if pid is None else read_vitals(pid), heard_at_s()):
            case Hung(problem):
                log.error("registrar_hung", pid=pid, problem=problem, action="it is killed and started anew")
                supervisor.kill()
            case Unreachable(problem):
                log.warning("registrar_unreachable", pid=pid, problem=problem)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await stop.wait()
