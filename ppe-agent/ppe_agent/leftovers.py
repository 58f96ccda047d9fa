"""Ends what commands of checks and load sources leave running; `setsid` leads out of a command's group.

The agent adopts orphans (PR_SET_CHILD_SUBREAPER), so a command's leftovers are the agent's children once the
command ended. Each command has a number in its environment, which its descendants inherit. Children without a
number come from no command, and sctpd serves other programs as well: both stay. So does a process that was
started with an emptied environment.
"""

import asyncio
import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_MARK: Final = "PPE_AGENT_COMMAND"
_SPARED: Final = "sctpd"
_AGAIN_S: Final = 0.02
_MOST_TURNS: Final = 50
"""A process that forks faster than it is killed is met again when the next command ends."""


def adopt_orphans() -> None:
    """Become the parent of processes whose parent among this process's descendants has ended (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Commands:
    """The commands that run now, by number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ending: asyncio.TimerHandle | None = None

    def environment(self) -> Mapping[str, str]:
        """The variables that the next command's environment needs."""
        return {_MARK: f"{os.getpid()}.{next(self._numbers)}"}

    def began(self, environment: Mapping[str, str], process: subprocess.Popen[bytes]) -> None:
        """A command runs; nothing of it is killed before it ended."""
        self._running[environment[_MARK]] = process

    def ended(self) -> None:
        """A command ended and was reaped: kill what it left."""
        self._running = {
            number: program for number, program in self._running.items() if program.returncode is None
        }
        if self._ending is None:
            self._end_leftovers(_MOST_TURNS)

    def _end_leftovers(self, turns: int) -> None:
        """Kill the children that commands left, and then the children of those."""
        self._ending = None
        are_met = [self._end_child(pid) for pid in _children()]
        if any(are_met) and turns:
            loop = asyncio.get_running_loop()
            self._ending = loop.call_later(_AGAIN_S, self._end_leftovers, turns - 1)

    def _end_child(self, pid: int) -> bool:
        """Kill or reap a child that a command left; return whether there was something to do."""
        if any(process.pid == pid for process in self._running.values()):
            return False
        with contextlib.suppress(OSError):
            name, state = _name_and_state(pid)
            if name == _SPARED:
                return False
            if state == "Z":
                return os.waitpid(pid, os.WNOHANG)[0] == pid
            number = _number(pid)
            if number is not None and number not in self._running:
                os.kill(pid, signal.SIGKILL)
                return True
        return False


def _children() -> Iterator[int]:
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            yield from map(int, file.read_text().split())


def _name_and_state(pid: int) -> tuple[str, str]:
    name, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    return name.partition("(")[2], rest.split()[0]


def _number(pid: int) -> str | None:
    """The number of the command that a process comes from; None: of none."""
    prefix = f"{_MARK}=".encode()
    for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if each.startswith(prefix):
            return each.removeprefix(prefix).decode("ascii", "replace")
    return None
