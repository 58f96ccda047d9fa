"""What `rspdns-lab bench-sctp` found, as one HTML page with plots."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rspdns_lab.bench_sctp.figures import TITLES, Measured, figures_of, in_digits, missed, table
from rspdns_lab.report.html import Page, Section, new_plot, plain_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

_INTRO: Final = (
    "This host's SCTP (sctpd's, or the kernel's) beside kernel UDP and TCP, in one run, on loopback in a "
    "network namespace of its own."
)
_GREEN, _GREY = "#009e73", "#9aa0a6"
_PLOTS: Final = (
    (
        "Round trip, both ends in Python. Green is SCTP.",
        "µs",
        ("udp_round_trip_us", "sctp_round_trip_us", "usrsctp_round_trip_us"),
    ),
    (
        "Messages of 100 bytes a second, one association. Green is SCTP.",
        "messages a second",
        ("udp_messages_per_s", "tcp_messages_per_s", "sctp_messages_per_s", "usrsctp_messages_per_s"),
    ),
    (
        "From kill -9 to the peer being told. Green is SCTP.",
        "ms",
        (
            "killed_tcp_median_ms",
            "killed_quarter_ms",
            "killed_median_ms",
            "killed_p99_ms",
            "killed_group_tcp_median_ms",
            "killed_group_quarter_ms",
            "killed_group_median_ms",
            "killed_group_p99_ms",
        ),
    ),
)
_BARS: Final = {
    "killed_tcp_median_ms": "TCP, one process: median",
    "killed_group_tcp_median_ms": "TCP, a group of four: median",
}
"""Titles of bars whose title in the table says \"the same\"."""


def page_of(found: Sequence[Measured]) -> Page:
    """Return the page."""
    figures = figures_of(found)
    plots = []
    for caption, unit, keys in _PLOTS:
        known = [key for key in keys if key in figures]
        if known:
            plots.append((caption, _plot(figures, known, unit)))
    late = "; ".join(TITLES[key] for key in missed(figures))
    text = f"Missed its aim: {late}." if late else "Every aim was reached."
    return Page("What SCTP costs", _INTRO, [Section("Figures", text, table(figures), plots)])


def _plot(figures: Mapping[str, float], keys: Sequence[str], unit: str) -> "Plot":
    plot = new_plot(height_inch=0.32 * len(keys) + 1.2)
    axes = plot.subplots()
    values = [figures[key] for key in keys]
    colours = [_GREY if "tcp" in key or "udp" in key else _GREEN for key in keys]
    bars = axes.barh([_BARS.get(key, TITLES[key]) for key in keys], values, color=colours)
    axes.bar_label(bars, [in_digits(value) for value in values], padding=4, fontsize="small")
    axes.set_xlim(0, 1.2 * max([*values, 1e-9]))
    axes.set(xlabel=unit)
    plain_numbers(axes.xaxis)
    axes.invert_yaxis()
    return plot
