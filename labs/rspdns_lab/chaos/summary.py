"""From trials to a verdict: percentiles, bounds, the table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from rspdns_lab.chain.plan import FOLLOWS, FollowMethod
from rspdns_lab.chaos.verdict import ChaosTrial
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.page import Columns, Rows, table_of


@dataclass(frozen=True)
class Bounds:
    """The bounds of a fault's effect on the answers; None: no bound of its own. Times in ms.

    `p50_ms`, `p99_ms`, `max_ms`: of last_wrong_ms. `missing_ms`: how long a live server may be left out.
    `dead_ms`: how long a dead server, or a stranger, may be named.
    """

    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    missing_ms: float | None = 1000.0
    dead_ms: float | None = None
    servfail: bool = False
    """Whether SERVFAIL is expected: the backend is down and a cached answer ran out."""
    silence: bool = False
    """Whether a name server may be silent."""


MOST_REPORT_OFF: Final = 0.01
"""The most by which `rspdns report` may differ from the lab's clock."""
FOLLOWED: Final[Mapping[FollowMethod, str]] = {"enrp": "followed by ENRP", "poll": "polled only"}


@dataclass(frozen=True)
class Case:
    """One row of the table: a fault in a pool of `members`, registrars followed as `follow` says."""

    fault: str
    members: int
    follow: FollowMethod
    fastpath: bool = False
    """Whether the kernels of the name servers answer."""

    def __str__(self) -> str:
        by_kernel = ", answered by the kernel" if self.fastpath else ""
        return f"{self.fault} in a pool of {self.members}, registrars {FOLLOWED[self.follow]}{by_kernel}"


@dataclass(frozen=True)
class CaseTrial:
    """One trial of a case."""

    case: Case
    trial: ChaosTrial

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        return {**asdict(self.case), "trial": asdict(self.trial)}


def read_trial(fields: Mapping[str, Any]) -> CaseTrial:
    """Return a trial as `as_json` gave it. Raises TypeError or LookupError for something else."""
    if fields["follow"] not in FOLLOWS:
        raise LookupError(fields["follow"])
    fastpath = fields.get("fastpath", False) is True
    case = Case(str(fields["fault"]), int(fields["members"]), fields["follow"], fastpath)
    return CaseTrial(case, ChaosTrial(**fields["trial"]))


def trials_of(case: Case, found: Iterable[CaseTrial]) -> list[ChaosTrial]:
    """Return the trials of a case."""
    return [each.trial for each in found if each.case == case]


@dataclass(frozen=True)
class ChaosRow:
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
    report_off: float | None = None
    times_ms: tuple[float, ...] = ()
    """The time to the last wrong answer in each trial."""

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        fields = asdict(self)
        fields["longest_missing_ms"] = fields.pop("missing_ms")
        del fields["times_ms"]
        return {**fields.pop("case"), **fields}


def summarize(case: Case, trials: Sequence[ChaosTrial], bounds: Bounds, slack: float = 1.0) -> ChaosRow:
    """Sum up the trials (at least one) of a case; time bounds, and how many questions may
    stay unanswered, are multiplied by `slack`."""
    times = [trial.last_wrong_ms for trial in trials]
    found: dict[str, Any] = {
        "p50_ms": percentile(times, 50),
        "p99_ms": percentile(times, 99),
        "max_ms": max(times),
        "missing_ms": max(trial.longest_missing_ms for trial in trials),
    }
    problems = [
        f"{name.removesuffix('_ms')} {round(value, 1):g} ms, allowed are {bound * slack:g} ms"
        for name, value in found.items()
        if (bound := getattr(bounds, name)) is not None and value > bound * slack
    ]
    dead_ms = max(trial.longest_dead_ms for trial in trials)
    if bounds.dead_ms is not None and dead_ms > bounds.dead_ms * slack:
        problems.append(f"a dead server or a stranger named for {dead_ms:g} ms")
    empty, servfail, malformed, timeouts, answers = (
        sum(getattr(trial, name) for trial in trials)
        for name in ("empty", "servfail", "malformed", "timeouts", "answers")
    )
    for count, what in ((empty, "empty answers"), (malformed, "malformed answers")):
        problems += [f"{count} {what}"] if count else []
    problems += [f"{servfail} SERVFAIL"] if servfail and not bounds.servfail else []
    # A busy machine loses a datagram now and then.
    if not bounds.silence and timeouts > min(0.5, 0.02 * slack) * answers:
        problems.append(f"{timeouts} questions unanswered")
    report_off = max((trial.report_off for trial in trials if trial.report_off is not None), default=None)
    if report_off is not None and report_off > MOST_REPORT_OFF * slack:
        problems.append(f"the report differs by {report_off:.1%} from the lab's clock")
    problems += (
        ["no answers at all"] if any(not trial.answers and not trial.problem for trial in trials) else []
    )
    problems += sorted({trial.problem for trial in trials if trial.problem})
    counts = {"empty": empty, "servfail": servfail, "timeouts": timeouts, "answers": answers}
    found |= {"problems": tuple(problems), "report_off": report_off, "times_ms": tuple(times)}
    return ChaosRow(case, len(trials), **found, **counts)


_ENOUGH_TO_COMPARE: Final = 5
"""Trials: of fewer, chance decides which median is larger."""
_WORSE_MS: Final = 5.0


def compared(rows: Sequence[ChaosRow], slack: float = 1.0) -> list[ChaosRow]:
    """The rows; one with answers from the kernel has a problem if half of its trials were worse than all
    without."""
    without = {row.case: row for row in rows if not row.case.fastpath}

    def judged(row: ChaosRow) -> ChaosRow:
        other = without.get(replace(row.case, fastpath=False)) if row.case.fastpath else None
        if other is None or min(row.trials, other.trials) < _ENOUGH_TO_COMPARE:
            return row
        if row.p50_ms <= other.max_ms + _WORSE_MS * slack:
            return row
        worse = f"p50 {row.p50_ms:g} ms, without answers from the kernel at most {other.max_ms:g} ms"
        return replace(row, problems=(*row.problems, worse))

    return [judged(row) for row in rows]


def _besides(row: ChaosRow) -> str:
    counts = {"empty": row.empty, "SERVFAIL": row.servfail, "unanswered": row.timeouts}
    words = [f"{count:,} {what}" for what, count in counts.items() if count]
    return ", ".join(words + ([] if row.report_off is None else [f"report off by {row.report_off:.2%}"]))


_COLUMNS: Final[Columns[ChaosRow]] = (
    *(("fault", lambda row: row.case.fault), ("trials", "{trials}")),
    *(("median", "{p50_ms:,.0f} ms"), ("longest", "{max_ms:,.0f} ms")),
    *(("live one missing", "{missing_ms:,.0f} ms"), ("answers besides", _besides)),
    ("bounds", lambda row: "; ".join(row.problems) or "kept"),
)


def table(rows: Sequence[ChaosRow]) -> Rows:
    """Return the table of a report: of one size of pools, one way to follow, one kind of answers."""
    return table_of(_COLUMNS, rows)
