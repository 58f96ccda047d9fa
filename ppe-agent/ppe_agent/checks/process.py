"""Watches a process by a pidfd: its exit is seen at once, whatever it listens on.

The process is found by its pid file, by its name, or by both: then the name keeps a stale pid file from
vouching for whichever process got the number since. If several processes have that name the oldest counts,
which is the first one of a server that forks.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from daemon_kit.finding import Finding, Life, of_error

from ppe_agent.checks.base import PeriodicCheck, Timing

_COMM_BYTES: Final = 15  # the kernel keeps so much of a name
_PROC: Final = Path("/proc")
_STOPPED: Final = frozenset("Tt")
_GONE: Final = frozenset("ZXx")


class ExitWatch:
    """Watches the process `pid`, and calls `on_exit` when it ends. Raises OSError when there is none."""

    def __init__(self, pid: int, on_exit: Callable[[], None]) -> None:
        self.pid = pid
        self.has_exited = False
        self._on_exit = on_exit
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._exited)

    def close(self) -> None:
        """Watch no more."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _exited(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)  # it stays readable
        self.has_exited = True
        self._on_exit()


class ProcessCheck(PeriodicCheck):
    """Watches the process that `pid_file` or `name` (or both) tell."""

    kind = "process"

    def __init__(self, pid_file: Path | None, name: str | None, timing: Timing) -> None:
        super().__init__(str(pid_file) if pid_file else f"process {name}", timing)
        self._pid_file = pid_file
        self._name = name
        self._watch: ExitWatch | None = None

    async def attempt(self) -> Finding:
        """Find the process unless it is held, and look at its state."""
        watch = self._watch or self._find()
        if isinstance(watch, Finding):
            return watch
        self._watch = watch
        state = None if watch.has_exited else _state(watch.pid)
        if state is None or state in _GONE:
            await self.close()
            return Finding(Life.REFUSED, f"process {watch.pid} has exited")
        if state in _STOPPED:
            return Finding(Life.UNWELL, f"process {watch.pid} is stopped")
        return Finding(Life.ALIVE, f"process {watch.pid} runs")

    async def close(self) -> None:
        """Let go of the process."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _find(self) -> ExitWatch | Finding:
        """Watch the process from now on; return what is wrong when there is none."""
        try:
            pid = _read_pid(self._pid_file) if self._pid_file else _oldest(self._name or "")
        except FileNotFoundError:
            return Finding(Life.REFUSED, f"there is no {self._pid_file}")
        except OSError as error:
            return of_error(error, f"{self._pid_file}")
        except ValueError:
            return Finding(Life.UNKNOWN, f"{self._pid_file} holds no process id")
        if pid is None:
            return Finding(Life.REFUSED, f"no process is named {self._name}")
        name = _name(pid)
        if name is not None and self._name is not None and name != _cut(self._name):
            return Finding(Life.REFUSED, f"process {pid} of {self._pid_file} is {name}, not {self._name}")
        try:
            return ExitWatch(pid, self.hurry)
        except ProcessLookupError:
            return Finding(Life.REFUSED, f"process {pid} is gone")
        except OSError as error:
            return of_error(error, f"process {pid} can't be watched")


def _read_pid(path: Path) -> int:
    """Return the number in a pid file. Raises OSError, or ValueError when it holds none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, 32)
    finally:
        os.close(descriptor)
    pid = int(data)
    if not 0 < pid < 2**31:
        raise ValueError("no process id")
    return pid


def _oldest(name: str) -> int | None:
    """Return the process named so that was started first."""
    processes = [
        (started, pid) for pid in _processes() if _name(pid) == _cut(name) for started in _start_ticks(pid)
    ]
    return min(processes)[1] if processes else None


def _cut(name: str) -> str:
    return name.encode()[:_COMM_BYTES].decode("utf-8", "replace")


def _processes() -> Iterator[int]:
    with os.scandir(_PROC) as entries:
        yield from (int(entry.name) for entry in entries if entry.name.isdigit())


def _name(pid: int) -> str | None:
    try:
        return (_PROC / str(pid) / "comm").read_bytes().rstrip(b"\n").decode("utf-8", "replace")
    except OSError:
        return None


def _fields(pid: int) -> list[str]:
    """Return what follows the name in /proc/PID/stat (proc(5)): state, ...; nothing when it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _state(pid: int) -> str | None:
    fields = _fields(pid)
    return fields[0] if fields else None


def _start_ticks(pid: int) -> list[int]:
    fields = _fields(pid)
    return [int(fields[19])] if len(fields) > 19 else []
