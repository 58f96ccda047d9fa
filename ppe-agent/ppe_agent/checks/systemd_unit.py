"""Asks systemd for the state of a unit, and watches the unit's main process in between.

`systemctl` is asked every interval; when the main process exits, at once.
"""

import asyncio
import os
import re
from typing import Final

from daemon_kit.finding import Finding, Life, of_error

from ppe_agent.checks.base import PeriodicCheck, Timing
from ppe_agent.checks.exec_check import run_command

_ALIVE: Final = frozenset({"active", "reloading"})
_PASSING: Final = frozenset({"activating"})
# systemd 252: "Failed to connect to bus: ..."; 257: "Failed to connect to system scope bus via ...".
_LACKS_BUS: Final = re.compile("[Ff]ailed to connect to (?:[a-z]+ scope )?bus")
_NO_BUS: Final = "; whoever is not root asks over D-Bus: is dbus installed here, and running?"
_PROPERTIES: Final = "LoadState,ActiveState,SubState,MainPID,Result"


def explained(words: str) -> str:
    """Return what systemctl said when it failed, with what to look at where it found no bus."""
    return words + (_NO_BUS if _LACKS_BUS.search(words) else "")


class SystemdUnitCheck(PeriodicCheck):
    """Watches the unit `unit`; `scope` is "system" or "user"."""

    kind = "systemd"

    def __init__(self, unit: str, timing: Timing, scope: str = "system") -> None:
        super().__init__(unit, timing)
        self._command = ["systemctl", f"--{scope}", "show", f"--property={_PROPERTIES}", "--", unit]
        self._pid = 0
        self._pidfd = -1

    async def attempt(self) -> Finding:
        """Ask once."""
        try:
            finished = await run_command(self._command, self._timing.timeout_ms)
        except TimeoutError:
            return Finding(Life.UNKNOWN, "systemctl did not answer", self._timing.timeout_ms)
        except OSError as error:
            return of_error(error, "systemctl can't be run")
        if finished.code != 0:
            words = finished.first_line or f"exit code {finished.code}"
            return Finding(Life.UNKNOWN, f"systemctl: {explained(words)}")
        finding, pid = judge(self.target, finished.output)
        self._watch(pid)
        return finding

    async def close(self) -> None:
        """Let go of the main process."""
        self._watch(0)

    def _watch(self, pid: int) -> None:
        """Watch the process `pid` (0: none) instead of the one before."""
        if pid == self._pid:
            return
        loop = asyncio.get_running_loop()
        if self._pidfd >= 0:
            loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._pid, self._pidfd = 0, -1
        if pid:
            try:
                self._pidfd = os.pidfd_open(pid)
            except OSError:
                self.hurry()  # gone already
                return
            self._pid = pid
            loop.add_reader(self._pidfd, self._exited)

    def _exited(self) -> None:
        self._watch(0)
        self.hurry()


def judge(unit: str, text: str) -> tuple[Finding, int]:
    """Return what `systemctl show` says about the unit, and its main process (0: none). Pure."""
    properties = dict(line.partition("=")[::2] for line in text.splitlines())
    state, detail = properties.get("ActiveState", ""), properties.get("SubState", "")
    shown = f"{unit} is {state} ({detail})"
    pid = properties.get("MainPID", "0")
    if properties.get("LoadState") == "not-found":
        return Finding(Life.UNKNOWN, f"systemd knows no unit {unit}"), 0
    if state in _ALIVE:
        return Finding(Life.ALIVE, shown), int(pid) if pid.isdigit() else 0
    if state in _PASSING:
        return Finding(Life.UNWELL, shown), 0
    result = properties.get("Result", "success")
    return Finding(Life.REFUSED, shown if result == "success" else f"{shown}: {result}"), 0
