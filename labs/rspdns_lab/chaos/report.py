"""The results of `rspdns-lab chaos`, as a page."""

from collections.abc import Sequence
from typing import Final

from rspdns_lab.chain.plan import FollowMethod
from rspdns_lab.chaos.run import ALL_FAULTS
from rspdns_lab.chaos.summary import FOLLOWED, ChaosRow, table
from rspdns_lab.report.page import Page, Section
from rspdns_lab.report.plots import Dots

_INTRO: Final = (
    "Every part is broken again and again, at random moments, while a client asks both name servers every "
    "millisecond. Times are from the fault to the last wrong answer: one that names a dead server, or lacks "
    "a live one, among questions sent after the fault. A question without an answer for 1 s is unanswered."
)
_CAPTION: Final = (
    "Time to the last wrong answer, a dot for each trial; the stroke is the median. A red line is the bound "
    "of p99, or of the longest where p99 has none."
)
_WHAT: Final = {fault.name: fault for fault in ALL_FAULTS}


def page_of(rows: Sequence[ChaosRow], slack: float = 1.0) -> Page:
    """Return the page; `slack` multiplied the bounds."""
    sections = []
    for size, follow, fastpath in dict.fromkeys(_chain(row) for row in rows):
        own = [row for row in rows if _chain(row) == (size, follow, fastpath)]
        by_kernel = ", answered by the kernel" if fastpath else ""
        title = f"Pools of {size}, registrars {FOLLOWED[follow]}{by_kernel}"
        sections.append(Section(title, _verdict(own), table(own), _plots(own, slack)))
    what = [("fault", "what is done"), *((name, _WHAT[name].what) for name in _faults(rows))]
    sections.append(Section("The faults", "", what))
    more = f" Bounds are multiplied by {slack:g}." if slack != 1 else ""
    return Page("What DNS says while parts fail", f"{_INTRO}{more}", sections)


def _chain(row: ChaosRow) -> tuple[int, FollowMethod, bool]:
    return row.case.members, row.case.follow, row.case.fastpath


def _faults(rows: Sequence[ChaosRow]) -> list[str]:
    return list(dict.fromkeys(row.case.fault for row in rows))


def _verdict(rows: Sequence[ChaosRow]) -> str:
    right = ", ".join(row.case.fault for row in rows if not row.max_ms)
    words = f" No answer was wrong in {right}." if right else ""
    broken = [row.case.fault for row in rows if row.problems]
    trials = sum(row.trials for row in rows)
    if not broken:
        return f"{trials} trials, {sum(row.answers for row in rows):,} answers; every bound was kept.{words}"
    return f"{trials} trials; bounds were broken by {', '.join(broken)}.{words}"


def _plots(rows: Sequence[ChaosRow], slack: float) -> Sequence[Dots]:
    """Return a plot of the faults after which some answer was wrong, if there are any."""
    wrong = [row for row in rows if row.max_ms]
    bounds = [_WHAT[row.case.fault].bounds_for(row.case.follow) for row in wrong]
    bounds_ms = [bound.max_ms if bound.p99_ms is None else bound.p99_ms for bound in bounds]
    plot = Dots(
        _CAPTION,
        "ms from the fault to the last wrong answer",
        [row.case.fault for row in wrong],
        {"trials": [row.times_ms for row in wrong]},
        [None if bound_ms is None else bound_ms * slack for bound_ms in bounds_ms],
    )
    return [plot] if wrong else []
