"""What the kernel tells about a process: whether it runs, waits or was stopped (proc(5))."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
        found = dict(_FIELDS.findall(Path(f"/proc/{pid}/status").read_text()))
        return Vitals(
            waits=int(found["voluntary_ctxt_switches"]),
            cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,  # utime, stime
            state=fields[0],
            is_traced=found["TracerPid"] != "0",
        )
    except (OSError, LookupError, ValueError):
        return None
