"""The keys of `rspdns-lab watch`: how they are read, and what each does to the application servers."""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import LOADS
from rspdns_lab.errors import LabError

OVERLOAD: Final = 0.97


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


@dataclass(frozen=True)
class Doing:
    """Something a key does to the chosen server. `mark` is how the server is shown from then on."""

    key: str
    word: str
    mark: str
    run: Callable[[Lab, str], None]


def _kill(lab: Lab, name: str) -> None:
    lab.application_servers[name].sip.kill()


def _hang(lab: Lab, name: str) -> None:
    sip = lab.application_servers[name].sip
    if not sip.is_running:
        raise LabError(f"{name} runs no more, so it can't hang; revive it first")
    sip.freeze()


def _cut(lab: Lab, name: str) -> None:
    lab.network.cut(lab.network.hosts[name])


def _drain(lab: Lab, name: str) -> None:
    lab.application_servers[name].drain()


def _overload(lab: Lab, name: str) -> None:
    set_load(lab, name, OVERLOAD)


def _revive(lab: Lab, name: str) -> None:
    """Take everything back, whatever was done."""
    server = lab.application_servers[name]
    lab.network.restore(lab.network.hosts[name])
    set_load(lab, name, LOADS[name])
    server.sip.thaw()
    if not server.sip.is_running:
        server.sip.start()
    server.undrain()


def set_load(lab: Lab, name: str, load: float) -> None:
    """Have the server's agent report this load, 0 to 1."""
    (lab.folder / name / "load").write_text(f"{load}\n")


DOINGS: Final = (
    Doing("k", "kill", "killed", _kill),
    Doing("h", "hang", "hung", _hang),
    Doing("c", "cut", "cable out", _cut),
    Doing("d", "drain", "drained", _drain),
    Doing("o", "overload", "overloaded", _overload),
    Doing("r", "revive", "", _revive),
)
