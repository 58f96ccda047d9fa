"""The results of `rspdns-lab compare`, as a table and as one HTML page with plots."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from rspdns_lab.compare.lab import TITLES
from rspdns_lab.compare.run import FAULTS, Measurement
from rspdns_lab.compare.voip import Quality
from rspdns_lab.report.page import (
    Page,
    Section,
    Table,
    legend_above,
    markdown_table,
    new_plot,
    plain_numbers,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

NOTES: Final = (
    "Address takeover (CARP, VRRP) keeps one address. A sender needs no DNS and notices nothing but the gap. "
    "But it joins two hosts on one network, and one of them is idle. It watches the host and its link, not "
    "the server on it, and knows no load. DNS spreads calls over any number of servers anywhere, by weight, "
    "and sees the server itself. But a caller learns of a change only with the next look-up, after the TTL. "
    "Neither way carries a call's state: the far end must. Here the stream asks DNS again each TTL (1 s)."
)
_NO_BAR: Final = 0.4
_CONVERGED: Final = "From the fault until DNS no longer named the server, or the last packet was lost"
_GLITCH: Final = "Speech that was lost: lost packets / packet rate"
_HEAD: Final = (
    "who answers",
    "trials",
    "converged ms (median)",
    "(max)",
    "glitch ms (median)",
    "(max)",
    "delay p99 ms",
    "jitter ms",
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


def summaries(trials: Sequence[Measurement]) -> list[Summary]:
    """Return a summary of each fault and approach that was measured."""
    found = []
    for fault in FAULTS:
        for approach in TITLES:
            of_one = [one for one in trials if (one.fault, one.approach) == (fault, approach)]
            if of_one:
                found.append(_summary(of_one))
    return found


def figures(carrier: tuple[int, str, str], trials: Sequence[Measurement]) -> dict[str, Any]:
    """Return what programs want to know beside the trials."""
    calls, codec, framing = carrier
    return {
        "carrier": {"calls": calls, "codec": codec, "framing": framing},
        "results": [asdict(one) for one in summaries(trials)],
    }


def measurement(fields: dict[str, Any]) -> Measurement:
    """Return a trial as it was written to JSON. Raises TypeError or LookupError for something else."""
    if fields["fault"] not in FAULTS or fields["approach"] not in TITLES:
        raise LookupError("a measurement that there isn't")
    return Measurement(**{**fields, "quality": Quality(**fields["quality"])})


def as_markdown(trials: Sequence[Measurement]) -> str:
    """Return the tables and what must be said about them."""
    found = summaries(trials)
    parts = [
        f"### {fault}: {title}\n\n{markdown_table(_table(found, fault))}"
        for fault, title in FAULTS.items()
        if any(one.fault == fault for one in found)
    ]
    return "\n".join([*parts, NOTES]) if parts else ""


def page_of(trials: Sequence[Measurement]) -> Page:
    """Return the page."""
    found = summaries(trials)
    sections = []
    for fault, title in FAULTS.items():
        of_one = [one for one in found if one.fault == fault]
        if not of_one:
            continue
        converged = _bars(
            [(one.approach, one.converged_median_ms, one.converged_max_ms) for one in of_one],
            "converged, ms (1 stands for less)",
        )
        glitch = _bars(
            [(one.approach, one.glitch_median_ms, one.glitch_max_ms) for one in of_one],
            "glitch, ms (1 stands for none)",
        )
        plots = [(_CONVERGED, converged), (_GLITCH, glitch)]
        sections.append(Section(f"{fault}: {title}", "", _table(found, fault), plots))
    return Page("How long a voice is gone", NOTES, sections)


def _bars(rows: Sequence[tuple[str, float | None, float | None]], label: str) -> "Plot":
    """Plot median and worst of each approach, in ms; None has no bar."""
    plot = new_plot(height_inch=0.5 * len(rows) + 1.5)
    axes = plot.subplots()
    indexes = range(len(rows))
    axes.barh(indexes, [_length(worst) for _, _, worst in rows], color="#cfd4da", label="worst")
    axes.barh(indexes, [_length(median) for _, median, _ in rows], color="#009e73", label="median")
    axes.set_yticks(indexes, [TITLES[approach] for approach, _, _ in rows])
    for index, (_, _, worst) in zip(indexes, rows, strict=True):
        if worst is None:
            axes.text(1.0, index, "not in time", verticalalignment="center")
    axes.set(xscale="log", xlabel=label)
    axes.set_xlim(left=2 * _NO_BAR)
    plain_numbers(axes.xaxis)
    axes.invert_yaxis()
    legend_above(axes)
    return plot


def _length(time_ms: float | None) -> float:
    return _NO_BAR if time_ms is None else max(time_ms, 1.0)


def _summary(of_one: Sequence[Measurement]) -> Summary:
    times = [one.converged_ms for one in of_one]
    known = [time for time in times if time is not None]
    whole = len(known) == len(times)
    glitches = [one.quality.glitch_ms for one in of_one]
    return Summary(
        fault=of_one[0].fault,
        approach=of_one[0].approach,
        trials=len(of_one),
        converged_median_ms=round(statistics.median(known), 1) if whole else None,
        converged_max_ms=max(known) if whole else None,
        glitch_median_ms=round(statistics.median(glitches), 1),
        glitch_max_ms=max(one.quality.worst_glitch_ms for one in of_one),
        delay_p99_ms=max(one.quality.delay_p99_ms for one in of_one),
        jitter_ms=round(statistics.median(one.quality.jitter_ms for one in of_one), 3),
    )


def _table(found: Sequence[Summary], fault: str) -> Table:
    rows: list[Sequence[str]] = [_HEAD]
    for one in found:
        if one.fault == fault:
            times = [
                "not in time" if value is None else f"{value:,.0f}"
                for value in (one.converged_median_ms, one.converged_max_ms)
            ]
            glitches = [f"{one.glitch_median_ms:,.0f}", f"{one.glitch_max_ms:,.0f}"]
            rest = [f"{one.delay_p99_ms:.2f}", f"{one.jitter_ms:.3f}"]
            rows.append([TITLES[one.approach], str(one.trials), *times, *glitches, *rest])
    return rows
