"""Labs as a user starts and interrupts them, and what they leave behind."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rspdns_lab.net.preconditions import in_user_namespace

from tests.support.stalls import Mark

LAB = (sys.executable, "-m", "rspdns_lab.cli")
# Generous: this is to find what is broken, not how fast a busy machine is.
CHAOS = (*LAB, "chaos", "--quick", "--follow", "poll", "--slack", "50")
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


@dataclass(frozen=True)
class Interruption:
    """A lab, by its arguments, that gets a signal as soon as it has said `said`."""

    arguments: str
    said: str
    number: signal.Signals

    def complaints(self) -> list[str]:
        """Run it; return what is not as it should be."""
        with subprocess.Popen(
            [*LAB, *self.arguments.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # a lab may keep it with its own files
        ) as lab:
            assert lab.stdout is not None
            story = ""
            while self.said not in story and (line := lab.stdout.readline()):
                story += line
            lab.send_signal(self.number)
            interrupted = Mark.now()
            try:
                story += lab.communicate(timeout=120)[0]
            except subprocess.TimeoutExpired:
                lab.kill()
        found = [f"left {trace}" for trace in traces(lab.pid)]
        if interrupted.ran_s() > 30:
            found.append("did not end soon")
        if self.said not in story or "interrupted; everything is cleaned up" not in story:
            found.append("did not say what it should")
        if lab.returncode != 130 or "Traceback" in story:
            found.append(f"exit status {lab.returncode}")
        return [f"{self.arguments}: {'; '.join(found)}:\n{story}"] if found else []
