"""Runs a command to its end without blocking and without a thread; used by checks and load sources."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from daemon_kit.child import die_with_parent

_KEPT_BYTES: Final = 4096
_READ_BYTES: Final = 64 * 1024
_LOOK_AGAIN_S: Final = 0.02
_DIE_WITH_AGENT: Final = die_with_parent(signal.SIGKILL)
_OF_THE_SERVICE: Final = frozenset(
    {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}
)
"""Between systemd and the agent: a `systemctl` that fails would tell that socket, each time."""

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
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return "".join(each if each.isprintable() else "?" for each in lines[0][:120]) if lines else ""


async def run_command(arguments: Sequence[str], timeout_ms: int) -> Finished:
    """Run a command; its output is read from standard output and standard error together.

    Raises OSError when it can't be started, TimeoutError when it takes too long; it is killed then, with all
    it started that is still in its process group. One that can't be killed (it waits for a disk, or became
    another user's) is left to end by itself; until then the same command is not started again, and takes too
    long.
    """
    async with asyncio.timeout(timeout_ms / 1000):
        while _is_ending(list(arguments)):  # noqa: ASYNC110 - it may be one that no pidfd could be had for
            await asyncio.sleep(_LOOK_AGAIN_S)
        return await _run(arguments)


async def _run(arguments: Sequence[str]) -> Finished:
    loop = asyncio.get_running_loop()
    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once; nothing here waits for the child
        list(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if name not in _OF_THE_SERVICE},
        preexec_fn=_DIE_WITH_AGENT,
        process_group=0,
        close_fds=True,
    )
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
    _KILLED[:] = [one for one in _KILLED if one.poll() is None]
    return any(one.args == arguments for one in _KILLED)


def _end(process: subprocess.Popen[bytes], pidfd: int) -> None:
    """Kill a command, if it still runs, and what it left behind; reap it when it ends, without waiting."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    loop = asyncio.get_running_loop()

    def reap() -> None:
        if pidfd >= 0:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        if process.poll() is not None and process in _KILLED:
            _KILLED.remove(process)

    if process.poll() is not None:
        reap()
        return
    _KILLED.append(process)
    if pidfd >= 0:
        loop.add_reader(pidfd, reap)
