"""Ends what commands of checks and load sources leave running; `setsid` leads out of a command's group.

The agent adopts orphans (PR_SET_CHILD_SUBREAPER), so a command's leftovers are the agent's children once the
command ended. Each command has a number, which its descendants inherit: its soft limit of bytes in POSIX
message queues (RLIMIT_MSGQUEUE, setrlimit(2)). Nearly nobody uses these, the limit stays about as large as
it is, and no descendant loses it by `setsid` or an emptied environment. Children without a number come from
no command, and sctpd serves other programs as well: both stay. A process that sets this limit itself stays,
too.
"""

import asyncio
import contextlib
import ctypes
import itertools
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from daemon_kit.logs import get_logger

_PR_SET_CHILD_SUBREAPER: Final = 36
_SPARED: Final = "sctpd"
_AGAIN_S: Final = 0.02
_MOST_TURNS: Final = 50
"""A process that forks faster than it is killed is met again when the next command ends."""
_NUMBERS: Final = 4096
"""Further commands have the numbers of those before: far more than run at a time."""
_USUAL_LIMIT: Final = 819_200
"""Bytes: the kernel's own limit."""


def adopt_orphans() -> None:
    """Become the parent of processes whose parent among this process's descendants has ended (prctl(2)).

    A warning says when commands can have no numbers, since nothing that they leave is killed then.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if not _numbers_of_commands():
        get_logger("checks").warning(
            "leftovers_stay",
            problem="the hard limit of bytes in message queues is 0: commands' leftovers can't be told apart",
            remedy="set LimitMSGQUEUE= of the service to at least 4096",
        )


def _numbers_of_commands() -> range:
    """The numbers for commands: the limits below this process's own, above it where that is 0."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    if soft == 0:
        return range(1, 1 + (_NUMBERS if hard == resource.RLIM_INFINITY else min(hard, _NUMBERS)))
    above = _USUAL_LIMIT if soft == resource.RLIM_INFINITY else soft
    return range(max(0, above - _NUMBERS), above)


class Commands:
    """The commands that run now, each with its number; where no number is free, several have the same."""

    def __init__(self) -> None:
        self._own, self._hard = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
        self._limits: Final = _numbers_of_commands()
        self._numbers = itertools.cycle(self._limits)
        self._running: list[tuple[int, subprocess.Popen[bytes]]] = []
        self._ending: asyncio.TimerHandle | None = None

    def next_number(self) -> int:
        """The number of the next command; the limit of this process when no number is free."""
        each_once = itertools.islice(self._numbers, len(self._limits))
        return next((number for number in each_once if not self._is_taken(number)), self._own)

    def _is_taken(self, number: int) -> bool:
        return any(number == taken for taken, _ in self._running)

    def marking(self, number: int) -> Callable[[], None]:
        """A step of the new process before it becomes the command: it takes its number."""
        limits = number, self._hard
        return lambda: resource.setrlimit(resource.RLIMIT_MSGQUEUE, limits)

    def began(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """A command runs; nothing of it is killed before it ended."""
        self._running.append((number, process))

    def ended(self) -> None:
        """A command ended and was reaped: kill what it left."""
        self._running = [running for running in self._running if running[1].returncode is None]
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
        if any(process.pid == pid for _, process in self._running):
            return False
        with contextlib.suppress(OSError):
            name, state = _name_and_state(pid)
            if name == _SPARED:
                return False
            if state == "Z":
                return os.waitpid(pid, os.WNOHANG)[0] == pid
            number, _ = resource.prlimit(pid, resource.RLIMIT_MSGQUEUE)
            if number in self._limits and not self._is_taken(number):
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
