"""Runs a command: exit code 0 is life; the first line it prints is what it saw."""

import signal
from collections.abc import Sequence
from pathlib import Path

from ppe_agent.checks.base import CheckResult, PeriodicCheck, Timing, alive, failed
from ppe_agent.checks.subprocess_run import run_command


class ExecCheck(PeriodicCheck):
    """Runs `command`, an argument list; no shell."""

    kind = "exec"

    def __init__(self, command: Sequence[str], timing: Timing) -> None:
        super().__init__(Path(command[0]).name, timing)
        self._command = tuple(command)

    async def attempt(self) -> CheckResult:
        """Run it once."""
        try:
            finished = await run_command(self._command, self._timing.timeout_ms)
        except TimeoutError:
            return failed(f"{self.target} did not end within {self._timing.timeout_ms} ms")
        except OSError as error:
            return failed(f"{self._command[0]} can't be run: {error.strerror}")
        said = f": {finished.first_line}" if finished.first_line else ""
        if finished.code == 0:
            return alive(f"{self.target} succeeded{said}")
        if finished.code < 0:
            return failed(f"{self.target} was ended by {_signal_name(-finished.code)}{said}")
        return failed(f"{self.target} exited with {finished.code}{said}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
