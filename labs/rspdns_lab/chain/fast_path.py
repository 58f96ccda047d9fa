"""rspdns-fastpath beside a lab's name server: whether there is one, starting it, and whether it answers."""

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rspdns.fastpath import DaemonStatus, ask_daemon

from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program

BUILT: Final = Path(__file__).resolve().parents[3] / "fastpath" / "build"
SOCKET: Final = "fastpath.sock"
_PROGRAM: Final = "rspdns-fastpath"
_SEARCH_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
_TIMEOUT_S: Final = 120


def _program() -> str:
    """The daemon of this source tree, or the installed one; empty: there is none."""
    own = BUILT / _PROGRAM
    return str(own) if own.exists() else shutil.which(_PROGRAM, path=_SEARCH_PATH) or ""


@functools.cache
def why_not() -> str:
    """Why nothing can be answered from the kernel here; empty: it can."""
    if not _program():
        return f"{_PROGRAM} is not built (make -C fastpath)"
    done = subprocess.run(
        [_program(), "probe"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    return done.stderr.strip() if done.returncode else ""


def daemon(host: Host, folder: Path, port: int, interface: str) -> Program:
    """rspdns-fastpath for the name server at this port of the host, not yet started."""
    where: Sequence[str] = ("--interface", interface, "--address", host.address, "--port", str(port))
    command = [_program(), "run", *where, "--socket", str(folder / SOCKET)]
    return Program("fastpath", host, command, folder / "fastpath.log")


def status(folder: Path) -> DaemonStatus | None:
    """The status of the daemon of the name server in this folder; None while it answers nothing."""
    try:
        return ask_daemon(str(folder / SOCKET))
    except (OSError, ValueError):
        return None


def answers(folder: Path) -> bool:
    """Whether the kernel answers for the name server in this folder."""
    told = status(folder)
    return told is not None and told.names > 0 and told.lease_ms > 0
