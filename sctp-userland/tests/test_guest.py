"""The guest that has a kernel's SCTP, as a program of the host."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.guest import guest_command
from tests.support.waiting import until


def processes_with(argument: str) -> list[int]:
    found = []
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if argument.encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(int(process))
        except OSError:
            continue
    return found


@pytest.mark.integration
def test_a_guest_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    """As a test does with one that takes too long."""
    job = tmp_path / "job"
    job.write_text(f"#!/bin/sh\necho up > {tmp_path / 'up'}\nsleep 600\n")
    job.chmod(0o755)
    with subprocess.Popen(
        guest_command(job, memory_mb=256), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as guest:
        until(lambda: (tmp_path / "up").exists(), 120)
        guest.kill()
    until(lambda: not processes_with(f"job={job}"), 30, "they go on for ever")
