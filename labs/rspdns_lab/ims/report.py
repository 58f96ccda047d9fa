"""The results of `rspdns-lab ims`, as a page."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from rspdns_lab.chain.side_by_side.approaches import TITLES
from rspdns_lab.ims.calls import TIMER_B_MS, CallTrial, Figures, sum_up
from rspdns_lab.ims.faults import FAULTS, ImsFault
from rspdns_lab.ims.lab import APPROACHES
from rspdns_lab.ims.shares import TEXT, not_moved, share_table
from rspdns_lab.report.page import Columns, Page, Section, table_of
from rspdns_lab.report.plots import BLUE, GREEN, GREY, ORANGE, RED, Bars, Curve, Curves

_INTRO: Final = (
    "Callers place calls through an S-CSCF stand-in (Kamailio: NAPTR, SRV, A, weights, failover, the timers "
    "of RFC 3261) to three application servers; one of them fails. Every approach to DNS has the same calls, "
    "the same servers and the same faults at the same moments. An S-CSCF told of a dead server waits "
    f"{TIMER_B_MS // 1000} s (Timer B) before it tries the next."
)
_COLOURS: Final = {"static": GREY, "lua": ORANGE, "gdnsd": BLUE, "rspdns": GREEN}
_FAILED_AT_MS: Final = 100_000.0
_CAPTION: Final = (
    "Each dot is a call. The red line is the fault, the grey one is 32 s; a call at the top edge failed."
)
BOUNDS_S: Final = MappingProxyType({"as-killed": 2.5, "as-hung": 3.5, "as-drained": 2.5, "as-link-cut": 3.5})
"""When the last call may have gone to a dead server under rspdns: the S-CSCF's cache keeps an answer for its
TTL of 1 s, and counts in whole seconds."""


def summaries(trials: Sequence[CallTrial]) -> list[Figures]:
    """Return the figures of every fault and approach that was measured, in the order of the lab's faults."""
    found: dict[tuple[str, str], list[CallTrial]] = {}
    for trial in trials:
        found.setdefault((trial.fault, trial.approach), []).append(trial)
    order = [fault.name for fault in FAULTS]
    return [sum_up(found[key]) for key in sorted(found, key=lambda key: order.index(key[0]))]


def problems(trials: Sequence[CallTrial]) -> list[str]:
    """Return, in words, what rspdns promises and did not keep."""
    found = []
    for row in summaries(trials):
        bound_s = BOUNDS_S.get(row.fault)
        if row.approach != "rspdns":
            continue
        if row.failed:
            found.append(f"{row.fault}: {row.failed} calls failed")
        if bound_s is not None and row.last_to_dead_s is not None and row.last_to_dead_s > bound_s:
            found.append(
                f"{row.fault}: a call went to the dead after {row.last_to_dead_s} s, allowed: {bound_s} s"
            )
        kept = not_moved(row, next(fault for fault in FAULTS if fault.name == row.fault))
        if kept:
            found.append(f"{row.fault}: {kept}")
    return found


def page_of(trials: Sequence[CallTrial]) -> Page:
    """Return the page."""
    sections = [_waited(_by_fault(summaries(trials)))]
    for fault, figures in _by_fault(summaries(trials)):
        plot = _plot([trial for trial in trials if trial.fault == fault.name])
        title = f"{fault.name}: {fault.title}"
        sections.append(Section(title, "", table_of(_COLUMNS, figures), [plot]))
        sections.append(Section("Servers that took the calls", TEXT, share_table(figures, fault)))
    return Page("IMS calls while an application server fails", _INTRO, sections)


def _waited(faults: Sequence[tuple[ImsFault, list[Figures]]]) -> Section:
    plots = [
        Bars(
            f"{fault.title}: calls that waited for longer than 1 s",
            f"calls of {max(row.calls for row in figures)}",
            {TITLES[row.approach]: float(row.slow) for row in figures},
            {TITLES["rspdns"]},
        )
        for fault, figures in faults
        if any(row.slow for row in figures)
    ]
    return Section("Callers who waited", "Nearly all of them waited for 32 s.", (), plots)


def _plot(trials: Sequence[CallTrial]) -> Curves:
    curves = []
    for key in APPROACHES:
        calls = [call for trial in trials if trial.approach == key for call in trial.calls]
        if calls:
            delays = [_FAILED_AT_MS if delay is None else delay for _, delay, _ in calls]
            curves.append(Curve(TITLES[key], [start for start, _, _ in calls], delays, _COLOURS[key], "o"))
    at_y = [(float(TIMER_B_MS), GREY)]
    labels = ("call began, s after the fault", "set-up delay, ms")
    return Curves(_CAPTION, *labels, curves, log="y", at_x=[(0.0, RED)], at_y=at_y)


def _by_fault(figures: Sequence[Figures]) -> list[tuple[ImsFault, list[Figures]]]:
    found = [(fault, [each for each in figures if each.fault == fault.name]) for fault in FAULTS]
    return [(fault, of_fault) for fault, of_fault in found if of_fault]


def _to_dead(row: Figures) -> str:
    last = (
        "" if not row.to_dead or row.last_to_dead_s is None else f", the last after {row.last_to_dead_s:g} s"
    )
    return "-" if row.to_dead is None else f"{row.to_dead:g}{last}"


_COLUMNS: Final[Columns[Figures]] = (
    ("DNS served by", lambda row: TITLES[row.approach]),
    *(("calls", "{calls}"), ("failed", "{failed}"), ("slow (> 1 s)", "{slow}")),
    *((f"{part} ms", f"{{{part}_ms:,.0f}}") for part in ("p95", "max")),
    ("sent to the dead", _to_dead),
)
