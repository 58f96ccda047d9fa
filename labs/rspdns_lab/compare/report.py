"""The results of `rspdns-lab compare`, as a page."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rspdns_lab.compare.lab import TITLES
from rspdns_lab.compare.run import FAULTS, StreamTrial
from rspdns_lab.compare.voip import Quality
from rspdns_lab.report.page import Columns, Page, Section, table_of
from rspdns_lab.report.plots import Dots

NOTES: Final = (
    "Address takeover (CARP, VRRP) keeps one address. A sender needs no DNS and notices nothing but the gap. "
    "But it joins two hosts on one network, and one of them is idle. It watches the host and its link, not "
    "the server on it, and knows no load. DNS spreads calls over any number of servers anywhere, by weight, "
    "and sees the server itself. But a caller learns of a change only with the next look-up, after the TTL. "
    "Neither way carries a call's state: the far end must. Here the stream asks DNS again each TTL (1 s)."
)
_CAPTION: Final = (
    "*Converged*: from the fault until DNS no longer named the server, or the last packet was lost. "
    "*Glitch*: speech that was lost, lost packets / packet rate. A dot for each trial."
)


@dataclass(frozen=True)
class Summary:
    """All trials of one fault with one approach; None: it did not converge in at least one of them."""

    fault: str
    approach: str
    trials: int
    converged_median_ms: float | None
    converged_max_ms: float | None
    glitch_median_ms: float
    glitch_max_ms: float
    delay_p99_ms: float
    jitter_ms: float


def summaries(trials: Sequence[StreamTrial]) -> list[Summary]:
    """Return a summary of each fault and approach that was measured."""
    found = []
    for fault in FAULTS:
        for approach in TITLES:
            of_pair = [trial for trial in trials if (trial.fault, trial.approach) == (fault, approach)]
            if of_pair:
                found.append(_summary(of_pair))
    return found


def figures(trials: Sequence[StreamTrial]) -> dict[str, Any]:
    """Return what programs want to know beside the trials."""
    return {"results": [asdict(row) for row in summaries(trials)]}


def measurement(fields: dict[str, Any]) -> StreamTrial:
    """Return a trial as it was written to JSON. Raises TypeError or LookupError for something else."""
    if fields["fault"] not in FAULTS or fields["approach"] not in TITLES:
        raise LookupError("a measurement that there isn't")
    return StreamTrial(**{**fields, "quality": Quality(**fields["quality"])})


def page_of(trials: Sequence[StreamTrial]) -> Page:
    """Return the page."""
    found = summaries(trials)
    sections = []
    for fault, title in FAULTS.items():
        if rows := [row for row in found if row.fault == fault]:
            own = [trial for trial in trials if trial.fault == fault]
            sections.append(Section(f"{fault}: {title}", "", table_of(_COLUMNS, rows), [_dots(own)]))
    return Page("How long a voice is gone", NOTES, sections)


def _dots(trials: Sequence[StreamTrial]) -> Dots:
    return Dots.of(
        _CAPTION,
        "ms",
        sorted(trials, key=lambda trial: list(TITLES).index(trial.approach)),
        lambda trial: TITLES[trial.approach],
        {
            "converged": lambda trial: [trial.converged_ms],
            "glitch": lambda trial: [trial.quality.glitch_ms],
        },
        never="not in time",
    )


def _summary(of_pair: Sequence[StreamTrial]) -> Summary:
    times = [trial.converged_ms for trial in of_pair]
    known = [time for time in times if time is not None]
    whole = len(known) == len(times)
    glitches = [trial.quality.glitch_ms for trial in of_pair]
    return Summary(
        fault=of_pair[0].fault,
        approach=of_pair[0].approach,
        trials=len(of_pair),
        converged_median_ms=round(statistics.median(known), 1) if whole else None,
        converged_max_ms=max(known) if whole else None,
        glitch_median_ms=round(statistics.median(glitches), 1),
        glitch_max_ms=max(trial.quality.worst_glitch_ms for trial in of_pair),
        delay_p99_ms=max(trial.quality.delay_p99_ms for trial in of_pair),
        jitter_ms=round(statistics.median(trial.quality.jitter_ms for trial in of_pair), 3),
    )


def _in_time(time_ms: float | None) -> str:
    return "not in time" if time_ms is None else f"{time_ms:,.0f}"


_COLUMNS: Final[Columns[Summary]] = (
    ("who answers", lambda row: TITLES[row.approach]),
    ("trials", "{trials}"),
    ("converged ms: median", lambda row: _in_time(row.converged_median_ms)),
    ("longest", lambda row: _in_time(row.converged_max_ms)),
    *(("glitch ms: median", "{glitch_median_ms:,.0f}"), ("longest glitch ms", "{glitch_max_ms:,.0f}")),
    ("delay p99 ms", "{delay_p99_ms:.2f}"),
)
