"""From trials to a verdict: percentiles, bounds, the table; and the file that trials are kept in."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rspdns_lab.chain.plan import FOLLOWS, Follow
from rspdns_lab.chaos.verdict import Trial
from rspdns_lab.errors import LabError
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.html import Table


@dataclass(frozen=True)
class Bounds:
    """What a fault may do to the answers; None: no bound of its own. Times in ms.

    `p50_ms`, `p99_ms`, `max_ms`: of last_wrong_ms. `missing_ms`: how long a live server may be left out.
    """

    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    missing_ms: float | None = 1000.0
    servfail: bool = False
    """Whether SERVFAIL is expected: the backend is down and a cached answer ran out."""
    silence: bool = False
    """Whether a name server may be silent."""


FOLLOWED: Final[Mapping[Follow, str]] = {"enrp": "followed by ENRP", "poll": "polled only"}
_CASE: Final = ("fault", "members", "registrars")


@dataclass(frozen=True)
class Case:
    """One row of the table: a fault in a pool of `members`, registrars followed as `follow` says."""

    fault: str
    members: int
    follow: Follow


@dataclass(frozen=True)
class Row:
    """The sum of a case's trials; times in ms."""

    case: Case
    trials: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    missing_ms: float
    empty: int
    servfail: int
    timeouts: int
    answers: int
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        return {
            "fault": self.case.fault,
            "members": self.case.members,
            "follow": self.case.follow,
            "trials": self.trials,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "max_ms": self.max_ms,
            "longest_missing_ms": self.missing_ms,
            "empty": self.empty,
            "servfail": self.servfail,
            "timeouts": self.timeouts,
            "answers": self.answers,
            "problems": list(self.problems),
        }


def summarize(case: Case, trials: Sequence[Trial], bounds: Bounds, slack: float = 1.0) -> Row:
    """Sum up the trials (at least one) of a case; time bounds, and how many questions may
    stay unanswered, are multiplied by `slack`."""
    times = [one.last_wrong_ms for one in trials]
    found: dict[str, Any] = {
        "p50_ms": percentile(times, 50),
        "p99_ms": percentile(times, 99),
        "max_ms": max(times),
        "missing_ms": max(one.longest_missing_ms for one in trials),
    }
    problems = [
        f"{name.removesuffix('_ms')} {round(value, 1):g} ms, allowed are {bound * slack:g} ms"
        for name, value in found.items()
        if (bound := getattr(bounds, name)) is not None and value > bound * slack
    ]
    empty, servfail, malformed, timeouts, answers = (
        sum(getattr(one, name) for one in trials)
        for name in ("empty", "servfail", "malformed", "timeouts", "answers")
    )
    for count, what in ((empty, "empty answers"), (malformed, "malformed answers")):
        problems += [f"{count} {what}"] if count else []
    problems += [f"{servfail} SERVFAIL"] if servfail and not bounds.servfail else []
    # A busy machine loses a datagram now and then.
    if not bounds.silence and timeouts > min(0.5, 0.02 * slack) * answers:
        problems.append(f"{timeouts} questions unanswered")
    problems += ["no answers at all"] if any(not one.answers and not one.problem for one in trials) else []
    problems += sorted({one.problem for one in trials if one.problem})
    return Row(case, len(trials), **found, empty=empty, servfail=servfail, timeouts=timeouts, answers=answers,
               problems=tuple(problems))  # fmt: skip


def table(rows: Iterable[Row]) -> Table:
    """Return the table of a report."""
    lines: list[Sequence[str]] = [
        (*_CASE, *("trials", "p50", "p99", "max", "live one missing", "empty", "SERVFAIL", "bounds"))
    ]
    for row in rows:
        times = (f"{value:.0f} ms" for value in (row.p50_ms, row.p99_ms, row.max_ms, row.missing_ms))
        counts = (str(row.empty), str(row.servfail))
        kept = "; ".join(row.problems) or "kept"
        where = (row.case.fault, str(row.case.members), FOLLOWED[row.case.follow])
        lines.append([*where, str(row.trials), *times, *counts, kept])
    return lines


_BEGINNING: Final = b'{"fault": "'
"""Of every line that `Kept` writes."""


class Kept:
    """Trials in a file of JSON lines, so that a long run can be interrupted and taken up again."""

    def __init__(self, path: Path | None = None) -> None:
        """Read what is there; without a path nothing outlives this run.

        Raises LabError when the file can't be read or holds something else.
        """
        self._path = path
        self.trials: dict[Case, list[Trial]] = {}
        if path is None or not path.exists():
            return
        try:
            self._read(path)
        except OSError as error:
            raise LabError(f"{path} can't be read: {error.strerror}") from None

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        *lines, half = data.split(b"\n")
        is_cut = bool(half) and _BEGINNING.startswith(half[: len(_BEGINNING)])
        if half and not is_cut:
            lines.append(half)
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            try:
                entry = json.loads(line)
                case = Case(
                    str(entry["fault"]), int(entry["members"]), FOLLOWS[FOLLOWS.index(entry["follow"])]
                )
                trial = Trial(**entry["trial"])
            except (ValueError, TypeError, KeyError):
                raise LabError(
                    f"{path}:{number}: no trial of this lab; give --results another file"
                ) from None
            self.trials.setdefault(case, []).append(trial)
        if is_cut:  # a run that was killed, or a disk that was full: the trial is done again
            os.truncate(path, len(data) - len(half))

    def add(self, case: Case, trial: Trial) -> None:
        """Take in one more trial, and write it down at once. Raises LabError when that fails."""
        self.trials.setdefault(case, []).append(trial)
        if self._path is None:
            return
        entry = {
            "fault": case.fault,
            "members": case.members,
            "follow": case.follow,
            "trial": trial.as_json(),
        }
        try:
            with self._path.open("a") as file:
                file.write(f"{json.dumps(entry)}\n")
        except OSError as error:
            raise LabError(f"{self._path} can't be written: {error.strerror}") from None
