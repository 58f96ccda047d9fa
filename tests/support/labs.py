"""Labs as a user starts them, and what they leave behind."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rspdns_lab.net.privilege import in_user_namespace

LAB = (sys.executable, "-m", "rspdns_lab.cli")
NAMESPACES = Path("/run/netns")
_ORDINARY_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def has_user_namespaces() -> bool:
    """Tell whether a lab may make a user namespace here. In a chroot the kernel refuses (EPERM)."""
    way = [*_ORDINARY_USER, *in_user_namespace(["true"])]
    return subprocess.run(way, capture_output=True, check=False).returncode == 0


def as_ordinary_user() -> Sequence[str]:
    """Return what a command begins with to be run without root: the lab has to make a user namespace.

    Nothing where the machine allows none (a chroot, for one): there a lab needs root.
    """
    return _ORDINARY_USER if has_user_namespaces() else ()


def traces(pid: int) -> list[str]:
    """Return what is left of the lab that the process `pid` ran: namespaces, files, programs."""
    namespaces = [str(path) for path in NAMESPACES.glob(f"rspdns-{pid}-*")]
    programs = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if f"rspdns-lab-{pid}-" in command:
                programs.append(command)
    files = [str(path) for path in Path(tempfile.gettempdir()).glob(f"rspdns-lab-{pid}-*")]
    return namespaces + programs + files
