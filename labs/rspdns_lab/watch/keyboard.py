"""Single keys from a terminal, without waiting for them and without showing them."""

import contextlib
import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any

from rspdns_lab.errors import LabError


class Keyboard:
    """A context manager; leaving it gives the terminal back as it was. Raises LabError without a terminal."""

    def __init__(self) -> None:
        if not sys.stdin.isatty():
            raise LabError("rspdns-lab watch needs a terminal to read keys from")
        self._file = sys.stdin.fileno()
        self._before: list[Any] = []

    def __enter__(self) -> "Keyboard":
        self._before = termios.tcgetattr(self._file)
        tty.setcbreak(self._file)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(termios.error):  # it is gone
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def key(self, timeout_s: float) -> str:
        """Return the next key, or nothing when none is pressed in time."""
        if not select.select([self._file], [], [], timeout_s)[0]:
            return ""
        return os.read(self._file, 1).decode(errors="replace")  # sys.stdin would read ahead
