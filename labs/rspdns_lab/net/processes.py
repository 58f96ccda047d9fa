"""Programs of a lab: started in a host's namespace, with a log file each, ended as whole process groups."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from daemon_kit.child import die_with_parent

from rspdns_lab.ending import uninterrupted
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host


class Program:
    """One program on one host. `kill()` is the fault, `stop()` is the orderly end."""

    def __init__(
        self,
        name: str,
        host: Host,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self.command = list(command)
        self.log = log
        self.descriptors: Sequence[int] = ()
        """The descriptors that it inherits when it is started."""
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, stdout: int | None = None) -> None:
        """Start it, in a process group of its own; it dies with the lab. Its output is added to the log."""
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    ["nsenter", f"--net={self.host.path}", "--", *self.command],
                    stdin=subprocess.DEVNULL,
                    stdout=log if stdout is None else stdout,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=die_with_parent(signal.SIGKILL),
                    pass_fds=self.descriptors,
                    env=self._environment,
                )
            except OSError as error:
                raise LabError(f"can't start {self.name}: {error.strerror or error}") from None

    @property
    def pid(self) -> int:
        """Process identifier. Raises LabError when it was not started."""
        if self._process is None:
            raise LabError(f"{self.name} was not started")
        return self._process.pid

    @property
    def stdout(self) -> IO[bytes]:
        """Its output, when started with a pipe."""
        if self._process is None or self._process.stdout is None:
            raise LabError(f"{self.name} has no output to read")
        return self._process.stdout

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """How it ended, negative for the signal that ended it; None when it runs, or was not started."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> float:
        """Kill the whole group at once (SIGKILL); return the monotonic time just before it."""
        now = time.monotonic()
        self._signal(signal.SIGKILL)
        self._wait(5.0)
        return now

    def stop(self, timeout_s: float = 5.0) -> None:
        """End it in order (SIGTERM), and by force after `timeout_s`. Safe to repeat."""
        self.terminate()
        if self.is_running:
            self._wait(timeout_s)
        self.ended()

    def ended(self) -> None:
        """Make sure that nothing of the group is left."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._wait(5.0)
            if self._process.stdout is not None:
                self._process.stdout.close()

    def freeze(self) -> float:
        """Stop the whole group (SIGSTOP), so that it hangs; return the monotonic time just before it."""
        now = time.monotonic()
        self._signal(signal.SIGSTOP)
        return now

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM and don't wait. A frozen process is thawed, or it would never receive the signal."""
        if self.is_running:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGTERM)
            self.thaw()

    def expect_running(self) -> None:
        """Raise LabError with the end of its log when it has ended."""
        if not self.is_running:
            raise LabError(f"{self.name} on {self.host.name} ended unexpectedly:\n{self.log_end()}")

    def log_end(self, lines: int = 12) -> str:
        """Return the last lines of its log."""
        with contextlib.suppress(OSError):
            text = self.log.read_text(errors="replace")
            return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
        return "    (no log)"

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number)

    def _wait(self, timeout_s: float) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)


def end_programs(programs: Sequence[Program], timeout_s: float = 5.0) -> None:
    """End all of them in order, at the same time, and by force after `timeout_s`. Safe to repeat; not
    interrupted by Ctrl-C."""
    with uninterrupted():
        for program in programs:
            program.terminate()
        end_s = time.monotonic() + timeout_s
        while any(program.is_running for program in programs) and time.monotonic() < end_s:
            time.sleep(0.02)
        for program in programs:
            program.ended()


def children_of(pid: int, name: str) -> list[int]:
    """Return the identifiers of the processes called `name` that descend from `pid`."""
    parents: dict[int, tuple[int, str]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                text = (process / "stat").read_text()
                command = text[text.index("(") + 1 : text.rindex(")")]
                parents[int(process.name)] = (int(text[text.rindex(")") + 2 :].split()[1]), command)
    return [
        child for child, (_, command) in parents.items() if command == name and _descends(child, pid, parents)
    ]


def _descends(child: int, ancestor: int, parents: Mapping[int, tuple[int, Any]]) -> bool:
    while child in parents:
        child = parents[child][0]
        if child == ancestor:
            return True
    return False


def processor_s(pid: int) -> float:
    """Return the processor time of all threads of a process, in seconds, to the nanosecond (proc(5)).

    psutil counts in steps of 10 ms, in which a second of little work is none. Raises OSError.
    """
    return _scheduled_s(pid, 0)


def waited_s(pid: int) -> float:
    """Return the time for which threads of a process could have run and had no processor. Raises OSError."""
    return _scheduled_s(pid, 1)


def _scheduled_s(pid: int, column: int) -> float:
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[column]) for thread in threads) / 1e9
