"""The results of `rspdns-lab chaos`, as one HTML page with plots."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rspdns_lab.chain.plan import Follow
from rspdns_lab.chaos.run import ALL_FAULTS
from rspdns_lab.chaos.summary import FOLLOWED, Bounds, Row, table
from rspdns_lab.report.page import Page, Section, legend_above, new_plot, plain_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Plot

_INTRO: Final = (
    "Every part is broken again and again, at random moments, while a client asks both name servers every "
    "millisecond. Times are from the fault to the last wrong answer: one that names a dead server, or lacks "
    "a live one, among questions sent after the fault. A question without an answer for 1 s is unanswered."
)
_CAPTION: Final = (
    "Time to the last wrong answer: p50, p99 and max of the trials; 0: never wrong. A red line is the bound "
    "of p99, or of max where p99 has none."
)
_MARKS: Final = (
    ("p50", {"marker": "o", "color": "#009e73"}),
    ("p99", {"marker": "o", "color": "#e69f00"}),
    ("max", {"marker": "o", "color": "#0072b2", "markersize": 10, "markerfacecolor": "none"}),
)
"""The largest is a ring, since it is often p99 as well."""
_LINEAR_MS: Final = 10.0
_LEAST_SHOWN_MS: Final = 100.0
_WHAT: Final = {fault.name: fault for fault in ALL_FAULTS}


def page_of(rows: Sequence[Row], slack: float = 1.0) -> Page:
    """Return the page; `slack` multiplied the bounds."""
    sections = []
    for size, follow, fastpath in dict.fromkeys(_chain(row) for row in rows):
        own = [row for row in rows if _chain(row) == (size, follow, fastpath)]
        plots = [(_CAPTION, _plot(own, slack))]
        by_kernel = ", answered by the kernel" if fastpath else ""
        title = f"Pools of {size}, registrars {FOLLOWED[follow]}{by_kernel}"
        sections.append(Section(title, _verdict(own), table(own), plots))
    what = [("fault", "what is done"), *((name, _WHAT[name].what) for name in _faults(rows))]
    sections.append(Section("The faults", "", what))
    more = f" Bounds are multiplied by {slack:g}." if slack != 1 else ""
    return Page("What DNS says while parts fail", f"{_INTRO}{more}", sections)


def _chain(row: Row) -> tuple[int, Follow, bool]:
    return row.case.members, row.case.follow, row.case.fastpath


def _faults(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.case.fault for row in rows))


def _verdict(rows: Sequence[Row]) -> str:
    broken = [row.case.fault for row in rows if row.problems]
    trials = sum(row.trials for row in rows)
    if not broken:
        return f"{trials} trials, {sum(row.answers for row in rows):,} answers; every bound was kept."
    return f"{trials} trials; bounds were broken by {', '.join(broken)}."


def _plot(rows: Sequence[Row], slack: float) -> "Plot":
    plot = new_plot(height_inch=0.32 * len(rows) + 1.2)
    axes = plot.subplots()
    names = [row.case.fault for row in rows]
    for part, mark in _MARKS:
        values = [getattr(row, f"{part}_ms") for row in rows]
        axes.plot(values, range(len(rows)), linestyle="", **mark, label=part, clip_on=False, zorder=3)
    for index, row in enumerate(rows):
        _mark_bound(axes, index, _WHAT[row.case.fault].bounds_for(row.case.follow), slack)
    axes.set_yticks(range(len(rows)), names)
    axes.set_xscale("symlog", linthresh=_LINEAR_MS)
    axes.set_xlim(0, max(_LEAST_SHOWN_MS, axes.get_xlim()[1]))
    axes.set(xlabel="ms from the fault to the last wrong answer")
    axes.grid(axis="y", color="#8888", linewidth=0.4)
    axes.invert_yaxis()
    plain_numbers(axes.xaxis)
    legend_above(axes)
    return plot


def _mark_bound(axes: "Axes", index: int, bounds: Bounds, slack: float) -> None:
    bound_ms = bounds.max_ms if bounds.p99_ms is None else bounds.p99_ms
    if bound_ms is not None:
        x = bound_ms * slack
        axes.plot([x, x], [index - 0.3, index + 0.3], color="#d00", linewidth=1.5, clip_on=False)
