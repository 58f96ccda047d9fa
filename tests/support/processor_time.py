"""How much of a core a process takes."""

import os
import time
from pathlib import Path


def processor_s(pid: int) -> float:
    """Return the processor time of all threads of a process, in seconds, to the nanosecond (proc(5))."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((tasks / task / "schedstat").read_text().split()[0]) for task in os.listdir(tasks)) / 1e9


def share_of_a_core(pid: int, time_s: float) -> float:
    """Return the share of a core that a process takes during the next `time_s`."""
    began_s, used_s = time.monotonic(), processor_s(pid)
    time.sleep(time_s)
    return (processor_s(pid) - used_s) / (time.monotonic() - began_s)
