"""Runs a command: exit code 0 is life; the first line it prints is what it saw.

`run_command` runs it to its end, without blocking and without a thread, for load sources too.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from daemon_kit.child import die_with_parent
from daemon_kit.errors import printable
from daemon_kit.finding import Finding, Life, of_error

from ppe_agent.checks.base import PeriodicCheck, Timing
from ppe_agent.leftovers import Commands

_KEPT_BYTES: Final = 4096
_READ_BYTES: Final = 64 * 1024
_LOOK_AGAIN_S: Final = 0.02
_DIE_WITH_AGENT: Final = die_with_parent(signal.SIGKILL)
_OF_THE_SERVICE: Final = frozenset(
    {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}
)
"""Between systemd and the agent: a `systemctl` that fails would tell that socket, each time."""

_COMMANDS: Final = Commands()
_KILLED: Final[list[subprocess.Popen[bytes]]] = []
"""Those that were killed and have not ended yet."""


@dataclass(frozen=True)
class Finished:
    """How a command ended: its exit code (negative: the signal that killed it) and how its output began."""

    code: int
    output: str

    @property
    def first_line(self) -> str:
        """The first line of the output that is not blank, cut for people; "" when there is none."""
        return self._line(0)

    @property
    def last_line(self) -> str:
        """The last one, likewise."""
        return self._line(-1)

    def _line(self, number: int) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return printable(lines[number], 120) if lines else ""


async def run_command(
    arguments: Sequence[str], timeout_ms: int, environment: Mapping[str, str] | None = None
) -> Finished:
    """Run a command; its output is read from standard output and standard error together.

    `environment` is added to that of this process.

    Raises OSError when it can't be started, TimeoutError when it takes too long; it is killed then.
    Processes that it left running are killed, too, and when it ended by itself (`ppe_agent.leftovers`). A
    command that can't be killed (it waits for a disk, or became another user's) is left to end by itself;
    until then the same command is not started again, and takes too long.
    """
    async with asyncio.timeout(timeout_ms / 1000):
        while _is_ending(list(arguments)):  # noqa: ASYNC110 - it may be one that no pidfd could be had for
            await asyncio.sleep(_LOOK_AGAIN_S)
        return await _run(arguments, environment or {})


async def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> Finished:
    loop = asyncio.get_running_loop()
    number = _COMMANDS.next_number()
    take_number = _COMMANDS.marking(number)

    def prepare() -> None:
        _DIE_WITH_AGENT()
        take_number()

    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once; nothing here waits for the child
        list(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if name not in _OF_THE_SERVICE}
        | dict(environment),
        preexec_fn=prepare,
        process_group=0,
        close_fds=True,
    )
    _COMMANDS.began(number, process)
    assert process.stdout is not None  # noqa: S101 - asked for above
    pipe = process.stdout.fileno()
    os.set_blocking(pipe, False)
    kept = bytearray()
    exited: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        try:
            data = os.read(pipe, _READ_BYTES)
        except BlockingIOError:
            return
        kept.extend(data[: _KEPT_BYTES - len(kept)])
        if not data:
            loop.remove_reader(pipe)

    def end() -> None:
        loop.remove_reader(pidfd)
        if not exited.done():
            exited.set_result(None)

    pidfd = -1
    try:
        pidfd = os.pidfd_open(process.pid)
        loop.add_reader(pipe, read)
        loop.add_reader(pidfd, end)
        await exited
        read()
    finally:
        loop.remove_reader(pipe)
        process.stdout.close()
        _end(process, pidfd)
    return Finished(process.returncode, kept.decode("utf-8", "replace"))


def _is_ending(arguments: list[str]) -> bool:
    """Tell whether a command was killed before and has not ended yet."""
    _KILLED[:] = [program for program in _KILLED if program.poll() is None]
    return any(program.args == arguments for program in _KILLED)


def _end(process: subprocess.Popen[bytes], pidfd: int) -> None:
    """Kill a command, if it still runs, and what it left behind; reap it when it ends, without waiting."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    loop = asyncio.get_running_loop()

    def reap() -> None:
        if pidfd >= 0:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        if process.poll() is not None:
            _COMMANDS.ended()
            if process in _KILLED:
                _KILLED.remove(process)

    if process.poll() is not None:
        reap()
        return
    _KILLED.append(process)
    if pidfd >= 0:
        loop.add_reader(pidfd, reap)


class ExecCheck(PeriodicCheck):
    """Runs `command`, an argument list; no shell."""

    kind = "exec"

    def __init__(self, command: Sequence[str], timing: Timing) -> None:
        super().__init__(Path(command[0]).name, timing)
        self._command = tuple(command)

    async def attempt(self) -> Finding:
        """Run it once."""
        try:
            finished = await run_command(self._command, self._timing.timeout_ms)
        except TimeoutError:
            return Finding(Life.UNWELL, f"{self.target} did not end", self._timing.timeout_ms)
        except OSError as error:
            return of_error(error, f"{self._command[0]} can't be run")
        said = f": {finished.first_line}" if finished.first_line else ""
        if finished.code == 0:
            return Finding(Life.ALIVE, f"{self.target} succeeded{said}")
        if finished.code < 0:
            return Finding(Life.UNWELL, f"{self.target} was ended by {_signal_name(-finished.code)}{said}")
        return Finding(Life.UNWELL, f"{self.target} exited with {finished.code}{said}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
