"""The results of `rspdns-lab ims`, as tables and as one HTML page with plots. Pure, but for writing the
page."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rspdns_lab.chain.side_by_side.approaches import TITLES
from rspdns_lab.ims.calls import TIMER_B_MS, Figures, Measurement, sum_up
from rspdns_lab.ims.faults import FAULTS, ImsFault
from rspdns_lab.ims.lab import APPROACHES
from rspdns_lab.ims.shares import CAPTION, TEXT, not_moved, share_plot, share_table
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

_HEAD: Final = (
    "DNS served by",
    "calls",
    "failed",
    "slow (> 1 s)",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "max ms",
    "sent to the dead",
    "last to the dead, s",
)
_INTRO: Final = (
    "Callers place calls through an S-CSCF stand-in (Kamailio: NAPTR, SRV, A, weights, failover, the timers "
    "of RFC 3261) to three application servers; one of them fails. Every approach to DNS has the same calls, "
    "the same servers and the same faults at the same moments. An S-CSCF told of a dead server waits "
    f"{TIMER_B_MS // 1000} s (Timer B) before it tries the next."
)
_COLOURS: Final = {"static": "#9aa0a6", "lua": "#e69f00", "gdnsd": "#0072b2", "rspdns": "#009e73"}
_FAILED_AT_MS: Final = 100_000.0
_CAPTION: Final = (
    "Each dot is a call. The red line is the fault, the dashed one is 32 s; a call at the top edge failed."
)
BOUNDS_S: Final = MappingProxyType({"as-killed": 2.5, "as-hung": 3.5, "as-drained": 2.5, "as-link-cut": 3.5})
"""When the last call may have gone to a dead server under rspdns: the S-CSCF's cache keeps an answer for its
TTL of 1 s, and counts in whole seconds."""


def summaries(trials: Sequence[Measurement]) -> list[Figures]:
    """Return the figures of every fault and approach that was measured, in the order of the lab's faults."""
    found: dict[tuple[str, str], list[Measurement]] = {}
    for trial in trials:
        found.setdefault((trial.fault, trial.approach), []).append(trial)
    order = [fault.name for fault in FAULTS]
    return [sum_up(found[key]) for key in sorted(found, key=lambda key: order.index(key[0]))]


def problems(trials: Sequence[Measurement]) -> list[str]:
    """Return, in words, what rspdns promises and did not keep."""
    found = []
    for one in summaries(trials):
        bound_s = BOUNDS_S.get(one.fault)
        if one.approach != "rspdns":
            continue
        if one.failed:
            found.append(f"{one.fault}: {one.failed} calls failed")
        if bound_s is not None and one.last_to_dead_s is not None and one.last_to_dead_s > bound_s:
            found.append(
                f"{one.fault}: a call went to the dead after {one.last_to_dead_s} s, allowed: {bound_s} s"
            )
        kept = not_moved(one, next(fault for fault in FAULTS if fault.name == one.fault))
        if kept:
            found.append(f"{one.fault}: {kept}")
    return found


def as_markdown(trials: Sequence[Measurement]) -> str:
    """Return all tables in Markdown."""
    parts = []
    for fault, of_one in _by_fault(summaries(trials)):
        parts.append(f"### {fault.name}: {fault.title}\n\n{markdown_table(_table(of_one))}")
        parts.append(markdown_table(share_table(of_one, fault)))
    return "\n".join(parts)


def page_of(trials: Sequence[Measurement]) -> Page:
    """Return the page."""
    sections = []
    for fault, of_one in _by_fault(summaries(trials)):
        plot = _plot([trial for trial in trials if trial.fault == fault.name])
        sections.append(Section(f"{fault.name}: {fault.title}", "", _table(of_one), [(_CAPTION, plot)]))
        plots = [(CAPTION, share_plot(of_one, fault))]
        sections.append(Section("Servers that took the calls", TEXT, share_table(of_one, fault), plots))
    return Page("IMS calls while an application server fails", _INTRO, sections)


def _plot(trials: Sequence[Measurement]) -> "Plot":
    plot = new_plot()
    axes = plot.subplots()
    for key in APPROACHES:
        calls = [call for trial in trials if trial.approach == key for call in trial.calls]
        if calls:
            delays = [_FAILED_AT_MS if delay is None else delay for _, delay, _ in calls]
            starts = [start for start, _, _ in calls]
            axes.scatter(
                starts, delays, s=14, label=TITLES[key], color=_COLOURS[key], alpha=0.7, linewidths=0
            )
    axes.axvline(0, color="#d00", linewidth=1)
    axes.axhline(TIMER_B_MS, color="#bbb", linewidth=0.8, linestyle="--")
    axes.set(yscale="log", xlabel="call began, s after the fault", ylabel="set-up delay, ms")
    plain_numbers(axes.yaxis)
    legend_above(axes, 2)
    return plot


def _by_fault(figures: Sequence[Figures]) -> list[tuple[ImsFault, list[Figures]]]:
    found = [(fault, [one for one in figures if one.fault == fault.name]) for fault in FAULTS]
    return [(fault, of_one) for fault, of_one in found if of_one]


def _table(figures: Sequence[Figures]) -> Table:
    rows: list[Sequence[str]] = [_HEAD]
    for one in figures:
        counts = [str(one.calls), str(one.failed), str(one.slow)]
        delays = [f"{delay:,.0f}" for delay in (one.p50_ms, one.p95_ms, one.p99_ms, one.max_ms)]
        dead = ["-" if value is None else f"{value:g}" for value in (one.to_dead, one.last_to_dead_s)]
        rows.append([TITLES[one.approach], *counts, *delays, *dead])
    return rows
