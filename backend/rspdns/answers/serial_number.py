"""The zones' SOA serial: it moves with every change and never goes back, across restarts too.

A new life of the backend begins at the wall clock's seconds, or above what the one before can have used:
that is kept in a file, written once for many serials. A second file holds the same: should a disk lose one,
the other one counts.
"""

from __future__ import annotations

from pathlib import Path

from daemon_kit.files import open_regular, remove_unfinished, replace_file
from daemon_kit.logs import get_logger

FILE_NAMES = ("serial", "serial.copy")
RESERVED = 10_000
_MAX_FILE_BYTES = 32


class SerialNumbers:
    """The serials of one life. `wall_s` is the wall clock's time at its start."""

    def __init__(self, directory: str | Path, wall_s: float) -> None:
        self._paths = [Path(directory) / name for name in FILE_NAMES]
        self._reserved = max(map(_read, self._paths))
        self._last = max(self._reserved, int(wall_s))
        self.problem: str | None = None
        """Why a file could not be written the last time; None if all could."""

    @property
    def following(self) -> int:
        """The serial of the next change."""
        return self._last + 1

    def use(self, serial: int) -> None:
        """This serial is about to be served."""
        self._last = max(self._last, serial)
        if self._last >= self._reserved:
            self._reserve(self._last + RESERVED)

    def _reserve(self, serial: int) -> None:
        self.problem = None
        for path in self._paths:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, f"{serial}\n".encode())
            except OSError as error:
                self.problem = f"{path}: can't be written: {error.strerror or error}"
                get_logger("serial").warning("serial_not_kept", problem=self.problem)
        self._reserved = serial


def _read(path: Path) -> int:
    remove_unfinished(path)
    try:
        with open_regular(path) as file:
            return max(0, int(file.read(_MAX_FILE_BYTES)))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        get_logger("serial").warning("serial_not_read", file=str(path), problem=str(error))
        return 0
