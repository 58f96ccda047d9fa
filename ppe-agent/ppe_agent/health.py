"""The health of one AS: all of its checks together. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ppe_agent.checks.base import CheckState, Outcome, RiseFall, Timing


@dataclass
class CheckRecord:
    """What one check has told so far; times are monotonic seconds, None before the first attempt."""

    kind: str
    port: int
    machine: RiseFall
    last: Outcome | None = None
    last_at_s: float | None = None
    since_s: float | None = None  # when the state began


class Health:
    """Up while every check is up."""

    def __init__(self, checks: Sequence[tuple[str, int, Timing]]) -> None:
        """Take kind, port and timing of each check."""
        self.checks = [
            CheckRecord(kind, port, RiseFall(timing.fall, timing.rise)) for kind, port, timing in checks
        ]

    @property
    def is_up(self) -> bool:
        """Tell whether the AS should be in its pool, as far as the checks go."""
        return all(check.machine.state is CheckState.UP for check in self.checks)

    @property
    def reason(self) -> str:
        """Say why the AS is not up (or that it is)."""
        for state, words in ((CheckState.DOWN, ""), (CheckState.UNKNOWN, "not known yet: ")):
            for check in self.checks:
                if check.machine.state is state:
                    said = check.last.reason if check.last else "not tried yet"
                    return f"{words}{check.kind}: {said}"
        return "all checks pass"

    def report(self, position: int, outcome: Outcome, now: float) -> bool:
        """Take in one attempt of the check at `position`; return whether its state changed."""
        check = self.checks[position]
        check.last, check.last_at_s = outcome, now
        changed = check.machine.report(outcome.verdict)
        if changed:
            check.since_s = now
        return changed

    def describe(self, now: float) -> list[dict[str, Any]]:
        """Return each check for people and programs: its state, since when, and what it saw last."""
        return [
            {
                "type": check.kind,
                "port": check.port,
                "state": check.machine.state.value,
                "since_s": _ago(check.since_s, now),
                "last": check.last.reason if check.last else None,
                "last_s": _ago(check.last_at_s, now),
            }
            for check in self.checks
        ]


def _ago(at_s: float | None, now: float) -> float | None:
    return None if at_s is None else round(now - at_s, 3)
