"""The folder of one `rspdns up`, removed at its end; what killed runs left is removed by the next one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from daemon_kit.logs import get_logger

PREFIX = "rspdns-up-"
LOCK = "lock"
"""Held by the owner as long as it lives: who can lock it knows that the owner is gone."""


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Yield a new folder in the directory for temporary files. Raises OSError."""
    remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, contextlib.ExitStack() as held:
        folder = Path(name)
        lock = held.enter_context((folder / f"{LOCK}.new").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / f"{LOCK}.new").rename(folder / LOCK)  # locked before anybody can find it
        yield folder


def remove_abandoned(where: Path) -> None:
    """Remove the folders of this user whose owners are gone."""
    for folder in where.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its owner lives
                for entry in [each for each in folder.iterdir() if each.name != LOCK]:
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
                shutil.rmtree(folder)  # the lock goes last: what is left after an error is found again
                get_logger("up").info("removed_what_a_killed_run_left", folder=str(folder))
            finally:
                os.close(descriptor)
