"""Asks systemd for the state of a unit, and watches the unit's main process in between.

`systemctl` is asked every interval; when the main process exits, at once.
"""

import re
from typing import Final

from daemon_kit.finding import Finding, Life, of_error

from ppe_agent.checks.base import PeriodicCheck, Timing
from ppe_agent.checks.exec_check import run_command
from ppe_agent.checks.process import ExitWatch

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
        self._main: ExitWatch | None = None

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
        if self._main is not None and (self._main.has_exited or self._main.pid != pid):
            self._main.close()
            self._main = None
        if pid and self._main is None:
            try:
                self._main = ExitWatch(pid, self.hurry)
            except OSError:
                self.hurry()  # gone already


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
