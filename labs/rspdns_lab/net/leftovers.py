"""Removes what a lab left that was itself killed with SIGKILL: namespaces, the processes in them, files."""

import contextlib
import os
import re
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from pyroute2 import netns

from rspdns_lab.net.network import NAMESPACE_FOLDER, kill_all_in, kill_until_gone

_NAMESPACE: Final = re.compile(r"rspdns-(\d+)-[0-9a-f]{4}-\w+")
_FOLDER: Final = re.compile(r"rspdns-lab-(\d+)-\w+")


def remove_leftovers() -> tuple[list[str], list[str]]:
    """Remove everything of labs whose process is gone.

    Return the names of what was removed, and of what could not be: another user's.
    """
    removed: list[str] = []
    kept: list[str] = []
    for path in _orphans(NAMESPACE_FOLDER, _NAMESPACE):
        kill_all_in(path)
        with contextlib.suppress(OSError):
            netns.remove(path.name)
        (kept if path.exists() else removed).append(path.name)
    for path in _orphans(Path(tempfile.gettempdir()), _FOLDER):
        # A lab without root has its namespaces in a user namespace of its own: here they have no names.
        kill_until_gone(partial(_programs_of, path))
        shutil.rmtree(path, ignore_errors=True)
        (kept if path.exists() else removed).append(str(path))
    return removed, kept


def _orphans(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            match = pattern.fullmatch(path.name)
            if match and not Path(f"/proc/{match[1]}").exists():
                found.append(path)
    return found


def _programs_of(folder: Path) -> list[int]:
    """Return the identifiers of the programs whose command lines name a file of the folder.

    A process in our own network namespace only looks at one of the files, and is left alone.
    """
    own = Path("/proc/self/ns/net").stat().st_ino
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                named = os.fsencode(folder) + b"/" in (process / "cmdline").read_bytes()
                if named and (process / "ns/net").stat().st_ino != own:
                    found.append(int(process.name))
    return found
