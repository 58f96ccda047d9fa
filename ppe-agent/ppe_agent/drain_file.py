"""A file that drains an AS while it exists: for configuration management and maintenance scripts."""

import asyncio
import os
from pathlib import Path
from typing import Final

from daemon_kit.logs import get_logger

_INTERVAL_S: Final = 0.5


class DrainFile:
    """Looks for the file `path`; None: there is none to look for."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.is_there = False
        self._problem: str | None = None
        self.look()

    def look(self) -> bool:
        """Look once; return whether that changed `is_there`.

        Where looking is not allowed it stays as it was.
        """
        if self.path is None:
            return False
        before = self.is_there
        problem = None
        try:
            os.lstat(self.path)
            self.is_there = True
        except (FileNotFoundError, NotADirectoryError):
            self.is_there = False
        except OSError as error:
            problem = error.strerror
        if problem is not None and problem != self._problem:
            get_logger("drain").warning("drain_file_unreadable", path=str(self.path), problem=problem)
        self._problem = problem
        return self.is_there is not before

    async def pause(self) -> None:
        """Wait until it is time to look again."""
        await asyncio.sleep(_INTERVAL_S)
