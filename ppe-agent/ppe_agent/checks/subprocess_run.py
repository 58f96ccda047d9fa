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
_DIE_WITH_AGENT: Final = die_with_parent(signal.SIGKILL)


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
    it started in its process group.
    """
    loop = asyncio.get_running_loop()
    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once; nothing here waits for the child
        list(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_DIE_WITH_AGENT,
        process_group=0,
        close_fds=True,
    )
    assert process.stdout is not None  # noqa: S101 - asked for above
    pipe = process.stdout.fileno()
    os.set_blocking(pipe, False)
    kept = bytearray()
    pidfd = os.pidfd_open(process.pid)
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
        if not exited.done():
            exited.set_result(None)

    loop.add_reader(pipe, read)
    loop.add_reader(pidfd, end)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await exited
        read()
    finally:
        loop.remove_reader(pidfd)
        loop.remove_reader(pipe)
        os.close(pidfd)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it, if it still runs, and what it left behind
        process.wait()
        process.stdout.close()
    return Finished(process.returncode, kept.decode("utf-8", "replace"))
