"""Builds that only tests need: each once, whichever of several test processes asks first."""

import fcntl
import os
import subprocess
from pathlib import Path

from tests.support.namespaces import REPOSITORY

REGISTRAR_CONFIG = REPOSITORY / "registrar-config"


def build(of: Path, target: str) -> None:
    """Run make for this target in the folder `of`; another test process waits meanwhile."""
    folder = os.open(of, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        command = ["make", "-s", "-j2", "-C", str(of), target]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        os.close(folder)


def sanitized_gate() -> Path:
    """Return the folder with the registrars' gate and its tests, built with the sanitizers."""
    build(REGISTRAR_CONFIG, "asan")
    return REGISTRAR_CONFIG / "build-asan"


def runtime() -> str:
    """Return the sanitizer's library: in a program that wasn't built with it, it must be loaded first."""
    command = ["gcc", "-print-file-name=libasan.so"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
