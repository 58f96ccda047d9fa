"""Starts the User-Mode Linux guest: a kernel with SCTP as an ordinary process, on the host's files."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
INIT = HERE / "guest_init.py"
REGISTERS = HERE / "uml_registers.c"
BUILT = HERE.parents[1] / ".setup" / "uml-registers.so"


def registers_library() -> Path:
    """Return the library without which no guest starts on processors with AMX, built if need be."""
    if not BUILT.exists() or BUILT.stat().st_mtime < REGISTERS.stat().st_mtime:
        BUILT.parent.mkdir(exist_ok=True)
        made = BUILT.with_name(f"{BUILT.name}.{os.getpid()}")
        options = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
        subprocess.run(["gcc", *options, "-o", str(made), str(REGISTERS), "-ldl"], check=True)
        made.replace(BUILT)
    return BUILT


def guest_command(job: Path, *, memory_mb: int, **arguments: object) -> list[str]:
    """Return the command line of a guest that runs the program `job` and powers off.

    With it end all processes that it is made of: killed alone, it would leave them. The job's output is the
    guest's. Further arguments stand in the guest's /proc/cmdline.
    """
    linux = shutil.which("linux.uml")
    if linux is None:
        pytest.fail("linux.uml is missing: apt-get install user-mode-linux")
    return [
        *("unshare", "--pid", "--fork", "--kill-child"),
        *(
            "sh",
            "-c",
            '"$@"; exit $?',
            "guest",
        ),  # the first process of a namespace isn't sent what it doesn't handle
        "env",
        f"LD_PRELOAD={registers_library()}",
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
