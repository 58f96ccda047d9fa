"""What `rspdns-lab loss` found, as one HTML page with a plot."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from rspdns_lab.loss.run import Look, LossPart, sum_up
from rspdns_lab.report.html import Page, Section, Table, legend_above, new_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

_INTRO: Final = (
    "Every cable of the lab loses packets, both ways, while a client asks both name servers every "
    "millisecond. All servers live: one that a registrar removes, or that an answer lacks, is one too many."
)
_CAPTION: Final = "Answers a second, and those that lacked a live server: no red is how it should be."


def page_of(parts: Sequence[LossPart]) -> Page:
    """Return the page of a run of at least one part."""
    outcome = sum_up(parts)
    timers = "tuned, as shipped" if outcome.tuned else "as kernels have them"
    text = f"{outcome.percent:g} % lost for {outcome.seconds:g} s; SCTP's timers are {timers}."
    plots = [(_CAPTION, _plot(outcome.looks))] if len(outcome.looks) > 1 else []
    section = Section("No live server was lost" if outcome.ok else "It failed", text, table(outcome), plots)
    return Page("What lost packets do to live servers", _INTRO, [section])


def table(outcome: LossPart) -> Table:
    """Return the table of a report."""
    rows = (
        ("packets lost", outcome.lost_packets, "more than 0"),
        ("answers", outcome.answers, "more than 0"),
        ("answers that lacked a live server", outcome.wrong, "0"),
        ("a registrar did not list a live server", outcome.removed, "0"),
        ("a backend dropped a live server, for some ms at least", outcome.left_dns, "0"),
    )
    return [("what", "how often", "must be"), *((what, f"{count:,}", must) for what, count, must in rows)]


def _plot(looks: Sequence[Look]) -> "Plot":
    plot = new_plot()
    axes = plot.subplots()
    times_s = [look.at_s for look in looks]
    for which, colour, label in (
        ("answers", "#009e73", "answers"),
        ("wrong", "#d00", "lacked a live server"),
    ):
        rates = [
            (getattr(after, which) - getattr(before, which)) / (after.at_s - before.at_s)
            for before, after in pairwise(looks)
        ]
        axes.stairs(rates, times_s, color=colour, label=label, baseline=0, fill=which == "wrong")
    axes.set(xlabel="s after packets began to be lost", ylabel="answers a second")
    axes.set_ylim(bottom=0)
    legend_above(axes)
    return plot
