"""The health of one AS: all of its checks together, and what a flapping one must prove. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from daemon_kit.durations import duration
from daemon_kit.finding import Finding, Life

from ppe_agent.checks.base import CheckState, RiseFall, Timing
from ppe_agent.status_model import CheckStatus

_MAX_DOUBLINGS: Final = 3


@dataclass
class CheckRecord:
    """The results of one check so far; times are monotonic seconds, None before the first attempt."""

    kind: str
    target: str
    machine: RiseFall
    last: Finding | None = None
    last_at_s: float | None = None
    since_s: float | None = None  # when the state began
    expires_at_s: float | None = None  # when the certificate that was seen last expires, in Unix time
    warned: str = ""  # the doubt about its life that the log told last


@dataclass(frozen=True)
class Damping:
    """After `falls` falls within `window_s` an AS must stay well for `well_for_s` before it is up again.

    Each further fall within the window doubles that time, at most three times. 0 falls: never.
    """

    falls: int = 0
    window_s: float = 60.0
    well_for_s: float = 10.0


class Health:
    """Well while every check is up; up while it is well and has proven that it stays so."""

    def __init__(
        self,
        checks: Sequence[tuple[str, str, Timing]],
        damping: Damping | None = None,
        *,
        state: CheckState = CheckState.UNKNOWN,
    ) -> None:
        """Take kind, target and timing of each check; all begin in `state`."""
        self.checks = [
            CheckRecord(kind, target, RiseFall(timing.fall, timing.rise, state))
            for kind, target, timing in checks
        ]
        self._damping = damping or Damping()
        self._falls_at_s: deque[float] = deque(maxlen=max(1, self._damping.falls + _MAX_DOUBLINGS))
        self._held_until_s = float("-inf")
        self._held_s = 0.0
        self.fall_count = 0

    def go_on_from(self, before: "Health", now: float) -> None:
        """Go on with the falls `before` saw, and with its hold if one lasts, by this one's damping."""
        self.fall_count = before.fall_count
        if self._damping.falls:
            self._falls_at_s.extend(before._falls_at_s)
        if before.held_for_s(now):  # one that is over stays over, or a reload would take a live server out
            self._hold(before._held_until_s - before._held_s)

    @property
    def is_well(self) -> bool:
        """Tell whether every check is up."""
        return all(check.machine.state is CheckState.UP for check in self.checks)

    @property
    def is_down(self) -> bool:
        """Tell whether a check is down (otherwise it is well, or not known yet)."""
        return any(check.machine.state is CheckState.DOWN for check in self.checks)

    def is_up(self, now: float) -> bool:
        """Tell whether the AS should be in its pool, as far as the checks go."""
        return self.is_well and now >= self._held_until_s

    def held_for_s(self, now: float) -> float:
        """Return for how long it must stay well before it is up again; 0 when it need not, or is not well."""
        return max(0.0, self._held_until_s - now) if self.is_well else 0.0

    def reason(self, now: float) -> str:
        """Say why the AS is not up (or that it is)."""
        for state, words in ((CheckState.DOWN, ""), (CheckState.UNKNOWN, "not known yet: ")):
            for check in self.checks:
                if check.machine.state is state:
                    said = check.last.words if check.last else "not tried yet"
                    return f"{words}{check.kind}: {said}"
        if not self.is_up(now):
            count, window_s = len(self._falls_at_s), self._damping.window_s
            return (
                f"fell {count} times within {window_s:g} s: must stay well for {self._held_s:g} s, "
                f"{duration(self.held_for_s(now))} to go"
            )
        return "all checks pass"

    def report(self, position: int, finding: Finding, now: float) -> bool:
        """Take in one attempt of the check at `position`; return whether its state changed."""
        check = self.checks[position]
        was_well = self.is_well
        check.last, check.last_at_s = finding, now
        if finding.expires_at_s is not None:
            check.expires_at_s = finding.expires_at_s
        changed = check.machine.report(finding.life)
        if changed:
            check.since_s = now
        if was_well and not self.is_well:
            self._falls_at_s.append(now)
            self.fall_count += 1
        elif self.is_well and not was_well:
            self._hold(now)
        return changed

    def new_warning(self, position: int) -> bool:
        """Tell whether the check at `position` found life, but with a doubt that was not told yet."""
        check = self.checks[position]
        if check.last is None or check.last.life is not Life.ALIVE or check.last.doubt in ("", check.warned):
            return False
        check.warned = check.last.doubt
        return True

    def _hold(self, now: float) -> None:
        """Decide, at the moment it is well again, how long it must stay so."""
        while self._falls_at_s and now - self._falls_at_s[0] > self._damping.window_s:
            self._falls_at_s.popleft()
        too_many = len(self._falls_at_s) - self._damping.falls
        if self._damping.falls and too_many >= 0:
            self._held_s = self._damping.well_for_s * 2.0 ** min(too_many, _MAX_DOUBLINGS)
            self._held_until_s = now + self._held_s
        else:
            self._held_until_s = float("-inf")

    def describe(self, now: float) -> list[CheckStatus]:
        """Return each check for people and programs: its state, since when, and what it saw last."""
        return [
            {
                "type": check.kind,
                "target": check.target,
                "state": check.machine.state.value,
                "since_s": _ago(check.since_s, now),
                "last": check.last.words if check.last else None,
                "found": check.last.life if check.last else None,
                "last_s": _ago(check.last_at_s, now),
                "expires_at_s": check.expires_at_s,
            }
            for check in self.checks
        ]


def _ago(at_s: float | None, now: float) -> float | None:
    return None if at_s is None else round(now - at_s, 3)
