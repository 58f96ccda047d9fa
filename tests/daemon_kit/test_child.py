"""A program does not outlive the one that started it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PARENT = """
import signal, subprocess, time
from daemon_kit.child import die_with_parent
child = subprocess.Popen(["sleep", "300"], preexec_fn=die_with_parent(signal.SIGTERM))
print(child.pid, flush=True)
time.sleep(300)
"""


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


def test_the_child_ends_with_its_parent_even_when_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            assert is_running(child)
        finally:
            parent.kill()
    try:
        end_s = time.monotonic() + 10
        while is_running(child) and time.monotonic() < end_s:
            time.sleep(0.02)
        assert not is_running(child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
