"""How much of a core a process takes."""

import time

from rspdns_lab.net.processes import processor_s


def share_of_a_core(pid: int, time_s: float) -> float:
    """Return the share of a core that a process takes during the next `time_s`."""
    began_s, used_s = time.monotonic(), processor_s(pid)
    time.sleep(time_s)
    return (processor_s(pid) - used_s) / (time.monotonic() - began_s)
