"""The command `rspdns-lab shim`, and its page."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from rspdns_lab.ending import say
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Rows, Section
from rspdns_lab.report.plots import BLUE, GREEN, GREY, ORANGE, Curve, Curves
from rspdns_lab.report.trials import LabReport, run_lab, trials_left, trials_option
from rspdns_lab.shim.lab import (
    FAST_RTO_MIN_MS,
    QUEUE,
    RATE_BPS,
    ROUND_TRIP_MS,
    WAYS,
    ShimTrial,
    mptcp_is_there,
    name_of,
    run_trial,
)

SIZES: Final = (50_000, 500_000, 5_000_000, 25_000_000)
LOSSES: Final = (0.01, 0.03, 0.06, 0.1)
MEASURES: Final = ("cut", "set-up", "messages", "transfer")
GAP_BOUND_MS: Final = 1000.0
_QUICK_TRIALS: Final = 3
_QUICK_SIZES: Final = SIZES[:2]
_COLOURS: Final = dict(zip(WAYS, (BLUE, GREY, ORANGE, GREEN), strict=True))


@click.command()
@click.option("--only", "measures", multiple=True, type=click.Choice(MEASURES), help="Only this; repeatable.")
@click.option("--way", "ways", multiple=True, type=click.Choice(WAYS), help="Only this; repeatable.")
@trials_option(30, "Runs of each figure.")
@click.option(
    "--quick", is_flag=True, help=f"{_QUICK_TRIALS} runs, transfers up to {_QUICK_SIZES[-1] // 1000} KB."
)
@report_options
def shim(measures: Sequence[str], ways: Sequence[str], trials: int, quick: bool, report: ReportFiles) -> None:
    """Compare TCP, Multipath TCP and `sctp-run --shim`: links that lose packets, a cable that is cut.

    Exit status: 0 as promised, 1 the shim paused for over a second or stopped, 2 the lab can't run here.
    """
    trials = min(trials, _QUICK_TRIALS) if quick else trials
    wanted = [way for way in WAYS if not ways or way in ways]
    if "MPTCP" in wanted and not mptcp_is_there():
        say("this kernel has no Multipath TCP: left out")
        wanted.remove("MPTCP")
    plan: dict[str, tuple[str, str, int, float]] = {}
    for measure in MEASURES:
        if measures and measure not in measures:
            continue
        for way in wanted:
            for size in (_QUICK_SIZES if quick else SIZES) if measure == "transfer" else (0,):
                for loss in LOSSES if measure == "transfer" else (0.0,):
                    plan[name_of(measure, way, size, loss)] = (measure, way, size, loss)

    def measure_all(earlier: Sequence[ShimTrial]) -> Iterable[Sequence[ShimTrial]]:
        done = {(trial.name, trial.trial) for trial in earlier}
        for name, trial in trials_left(list(plan), trials, done):
            found = run_trial(*plan[name], trial)
            say(f"{name}, run {trial}: {found.value}")
            yield [found]

    run_lab(report, REPORT, {}, measure_all)


def problems(found: Sequence[ShimTrial]) -> list[str]:
    """Return broken promises: with the shim a stream goes on by the other cable, within a second."""
    gaps = [trial.value for trial in found if (trial.measure, trial.way) == ("cut", "shim")]
    broken = [f"the shim's stream paused for {gap:.0f} ms" for gap in gaps if gap and gap > GAP_BOUND_MS]
    return broken + ["the shim's stream did not go on" for gap in gaps if gap is None]


def values(found: Sequence[ShimTrial], measure: str, way: str, size: int, loss: float) -> list[float]:
    """Return the figures of a measurement, the least first."""
    name = name_of(measure, way, size, loss)
    return sorted(trial.value for trial in found if trial.name == name and trial.value is not None)


def _spread(figures: Sequence[float], form: str) -> str:
    """Return the median, and the quarter below and above it."""
    if not figures:
        return "-"
    return (
        " ".join((form.format(percentile(figures, 50)), f"({form.format(percentile(figures, 25))}", "to"))
        + f" {form.format(percentile(figures, 75))})"
    )


def _ways(found: Sequence[ShimTrial]) -> list[str]:
    return [way for way in WAYS if any(trial.way == way for trial in found)]


def _transfers(found: Sequence[ShimTrial]) -> Rows:
    ways = _ways(found)
    rows: list[list[str]] = [["KB", "loss", "runs", *ways]]
    for size in SIZES:
        for loss in LOSSES:
            cells = [values(found, "transfer", way, size, loss) for way in ways]
            if any(cells):
                row = [f"{size // 1000:,}", f"{loss:.0%}", str(max(map(len, cells)))]
                rows.append([*row, *(_spread(cell, "{:.2f}") for cell in cells)])
    return rows


def _others(found: Sequence[ShimTrial]) -> Rows:
    rows: list[list[str]] = [
        ["way", "runs", "cut: longest pause, ms", "stopped for good", "connect(), us", "messages a second"]
    ]
    for way in _ways(found):
        cuts = [trial.value for trial in found if (trial.measure, trial.way) == ("cut", way)]
        rows.append(
            [
                way,
                str(len(cuts)),
                _spread(sorted(gap for gap in cuts if gap is not None), "{:,.0f}"),
                str(cuts.count(None)),
                _spread(values(found, "set-up", way, 0, 0.0), "{:,.0f}"),
                _spread(values(found, "messages", way, 0, 0.0), "{:,.0f}"),
            ]
        )
    return rows


def _curves(found: Sequence[ShimTrial]) -> list[Curves]:
    plots = []
    for size in SIZES:
        curves = []
        for way in _ways(found):
            points = [(loss, of) for loss in LOSSES if (of := values(found, "transfer", way, size, loss))]
            medians = [percentile(of, 50) for _, of in points]
            if points:
                curves.append(Curve(way, [100 * loss for loss, _ in points], medians, _COLOURS[way]))
        if curves:
            caption = f"{size // 1000:,} KB: medians."
            plots.append(Curves(caption, "% of packets lost", "s", curves, log="y"))
    return plots


def page_of(found: Sequence[ShimTrial]) -> Page:
    """Return the page."""
    load = max(trial.load_average for trial in found)
    sections = [
        Section(
            "A cable of two is cut",
            "A server sends 1,000 bytes every 5 ms; after 3 s the cable of the address that the client "
            f"connected to is cut. Rules with `rto_min_ms = {FAST_RTO_MIN_MS}`; MPTCP has the second "
            "addresses as its endpoints. Without a fault: the time of a connect(), and messages of 100 "
            "bytes, each after the answer to the last.",
            _others(found),
        )
    ]
    if plots := _curves(found):
        text = (
            f"Seconds from connect() to the last byte: {RATE_BPS / 1e6:g} Mbit/s, {ROUND_TRIP_MS:g} ms, a "
            f"queue of {QUEUE} packets, losses both ways. Median, and the quarters beside it. There is one "
            "path: the gain of MPTCP and SCTP by a second one is not in these figures. "
            "`rto_min_ms = 200`, as TCP's in Linux."
        )
        sections.append(Section("Transfers over a link that loses", text, _transfers(found), plots))
    intro = (
        "The same program, which knows TCP only: by TCP, Multipath TCP, and under `sctp-run --shim` by SCTP. "
        f"The load average of the machine was up to {load:.1f}."
    )
    return Page("TCP programs over SCTP", intro, sections)


def figures(found: Sequence[ShimTrial]) -> dict[str, Any]:
    """Return the median of each measurement."""
    medians = {}
    for trial in found:
        of = values(found, trial.measure, trial.way, trial.size, trial.loss)
        medians[trial.name] = percentile(of, 50) if of else None
    return {"medians": medians}


def _read(fields: dict[str, Any]) -> ShimTrial:
    return ShimTrial(**fields)


REPORT: Final = LabReport(_read, figures, page_of, problems)
