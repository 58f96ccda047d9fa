"""Starts the User-Mode Linux guest: a kernel with SCTP as an ordinary process, on the host's files."""

import shutil
import tempfile
from pathlib import Path

import pytest

INIT = Path(__file__).parents[1] / "sctp" / "kernel" / "init.py"


def guest_command(job: Path, *, memory_mb: int, **arguments: object) -> list[str]:
    """Return the command line of a guest that runs the program `job` and powers off.

    The job's output is the guest's. Further arguments stand in the guest's /proc/cmdline.
    """
    linux = shutil.which("linux.uml")
    if linux is None:
        pytest.fail("linux.uml is missing: apt-get install user-mode-linux")
    return [
        linux,
        "rootfstype=hostfs",
        "rw",
        f"mem={memory_mb}M",
        f"init={INIT}",
        "quiet",
        f"uml_dir={tempfile.gettempdir()}",  # not ~/.uml
        "con=null",
        "con0=null,fd:1",
        f"job={job}",
        *(f"{name}={value}" for name, value in arguments.items()),
    ]
