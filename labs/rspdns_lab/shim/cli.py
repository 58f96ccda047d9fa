"""The command `rspdns-lab shim`, and its page."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from daemon_kit.commands import example

from rspdns_lab.ending import say
from rspdns_lab.errors import LabError
from rspdns_lab.link import build_link
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Rows, Section
from rspdns_lab.report.plots import Dots
from rspdns_lab.report.trials import LabReport, run_lab, trials_left, trials_option
from rspdns_lab.shim.lab import (
    FAST_RTO_MIN_MS,
    QUEUE,
    RATE_BPS,
    ROUND_TRIP_MS,
    WAYS,
    ShimTask,
    ShimTrial,
    is_there,
    name_of,
    run_trial,
)
from rspdns_lab.side_by_side import side_by_side

SIZES: Final = (50_000, 500_000, 5_000_000, 25_000_000)
LOSSES: Final = (0.01, 0.03, 0.06, 0.1)
MEASURES: Final = ("set-up", "messages", "alone", "cut", "transfer")
GAP_BOUND_MS: Final = 1000.0
_QUICK_TRIALS: Final = 3
_QUICK_SIZES: Final = SIZES[:2]
_WAYS_BUT_CONTROL: Final = ("TCP CUBIC", "MPTCP", "shim")
"""The congestion control does not matter to what a connection costs, nor to a cable that is cut."""
_ONE_AT_A_TIME: Final = ("set-up", "messages", "alone")
_OTHERS: Final = ("set-up", "messages", "cut")
_ALONE_TRIALS: Final = 10
_ALONE_SIZE: Final = 500_000
_ALONE_WAYS: Final = ("TCP CUBIC", "shim")
_ALONE_LOSSES: Final = (LOSSES[0], LOSSES[-1])


@click.command(epilog=example("rspdns-lab shim --quick"))
@click.option("--only", "measures", multiple=True, type=click.Choice(MEASURES), help="Only this; repeatable.")
@click.option("--way", "ways", multiple=True, type=click.Choice(WAYS), help="Only this; repeatable.")
@trials_option(30, "Runs of each figure.")
@click.option(
    "--jobs",
    type=click.IntRange(1, 200),
    default=1,
    show_default=True,
    help="Links side by side, each in hosts of its own; what needs the processor is measured before, alone.",
)
@click.option(
    "--quick", is_flag=True, help=f"{_QUICK_TRIALS} runs, transfers up to {_QUICK_SIZES[-1] // 1000} KB."
)
@report_options
def shim(
    measures: Sequence[str], ways: Sequence[str], trials: int, jobs: int, quick: bool, report: ReportFiles
) -> None:
    """Compare TCP, Multipath TCP and `sctp-run --shim`: links that lose packets, a cable that is cut.

    Exit status: 0 as promised, 1 the shim paused for over a second or stopped, 2 the lab can't run here.
    """
    trials = min(trials, _QUICK_TRIALS) if quick else trials
    wanted = [way for way in WAYS if not ways or way in ways]
    for way in [way for way in wanted if not is_there(way)]:
        say(f"this kernel has no {way}: left out")
        wanted.remove(way)
    sizes = _QUICK_SIZES if quick else SIZES

    def measure_all(earlier: Sequence[ShimTrial]) -> Iterable[Sequence[ShimTrial]]:
        done = {(trial.name, trial.trial) for trial in earlier}
        with tempfile.TemporaryDirectory(prefix="rspdns-link-") as folder:
            link = build_link(Path(folder) / "link")
            plan = [
                ShimTask(*each, number, link)
                for each, number in trials_left(_plan(wanted, sizes), trials, done, lambda of: name_of(*of))
                if each[0] in (measures or MEASURES) and number <= _most(each[0], trials)
            ]
            yield from _measured([trial for trial in plan if trial.measure in _ONE_AT_A_TIME], 1)
            yield from _measured([trial for trial in plan if trial.measure not in _ONE_AT_A_TIME], jobs)

    run_lab(report, REPORT, {}, measure_all)


def _plan(ways: Sequence[str], sizes: Sequence[int]) -> list[tuple[str, str, int, float]]:
    """Return measure, way, size and loss of each figure; the longest transfers are begun first."""
    plan = [
        (measure, way, 0, 0.0)
        for measure in ("set-up", "messages", "cut")
        for way in ways
        if way in _WAYS_BUT_CONTROL
    ]
    plan += [
        ("alone", way, _ALONE_SIZE, loss) for loss in _ALONE_LOSSES for way in ways if way in _ALONE_WAYS
    ]
    return plan + [
        ("transfer", way, size, loss) for size in reversed(sizes) for loss in reversed(LOSSES) for way in ways
    ]


def _most(measure: str, trials: int) -> int:
    return min(trials, _ALONE_TRIALS) if measure in _ONE_AT_A_TIME else trials


def _measured(plan: Sequence[ShimTask], jobs: int) -> Iterator[Sequence[ShimTrial]]:
    """Raises LabError behind all trials when some could not be run: they are left for the next time."""
    failed: list[LabError] = []
    for outcome in side_by_side(run_trial, plan, jobs):
        if isinstance(outcome, LabError):
            say(f"not measured: {outcome}")
            failed.append(outcome)
        else:
            say(f"{outcome.name}, run {outcome.trial}: {outcome.value}")
            yield [outcome]
    if failed:
        raise LabError(f"{len(failed)} trials could not be run, the first one since: {failed[0]}")


def problems(found: Sequence[ShimTrial]) -> list[str]:
    """Return broken promises: with the shim a stream goes on by the other cable, within a second."""
    gaps = [trial.value for trial in found if (trial.measure, trial.way) == ("cut", "shim")]
    broken = [f"the shim's stream paused for {gap:.0f} ms" for gap in gaps if gap and gap > GAP_BOUND_MS]
    broken += ["the shim's stream did not go on" for gap in gaps if gap is None]
    return broken + [
        f"the shim's transfer of {trial.size // 1000:,} KB at a loss of {trial.loss:.0%} failed"
        for trial in found
        if trial.way == "shim" and trial.measure in {"transfer", "alone"} and trial.value is None
    ]


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


def _ways(found: Sequence[ShimTrial], *measures: str) -> list[str]:
    measured = {trial.way for trial in found if trial.measure in measures}
    return [way for way in WAYS if way in measured]


def _transfers(found: Sequence[ShimTrial]) -> Rows:
    ways = _ways(found, "transfer")
    rows: list[list[str]] = [["KB", "loss", "runs", *ways]]
    for size in SIZES:
        for loss in LOSSES:
            cells = [values(found, "transfer", way, size, loss) for way in ways]
            if any(cells):
                counts = [str(len(cell)) for cell in cells]
                runs = counts[0] if len(set(counts)) == 1 else " / ".join(counts)
                row = [f"{size // 1000:,}", f"{loss:.0%}", runs]
                rows.append([*row, *(_spread(cell, "{:.2f}") for cell in cells)])
    return rows


def _beside_and_alone(found: Sequence[ShimTrial]) -> Rows:
    rows: list[list[str]] = [["way", "loss", "runs alone", "alone, s", "the same runs side by side, s"]]
    for way in _ways(found, "alone"):
        for loss in _ALONE_LOSSES:
            of = {
                measure: {
                    trial.trial: trial.value
                    for trial in found
                    if trial.name == name_of(measure, way, _ALONE_SIZE, loss) and trial.value is not None
                }
                for measure in ("alone", "transfer")
            }
            both = of["alone"].keys() & of["transfer"].keys()
            if both:
                cells = [sorted(of[measure][number] for number in both) for measure in of]
                shown = [_spread(cell, "{:.2f}") for cell in cells]
                rows.append([way, f"{loss:.0%}", str(len(both)), *shown])
    return rows


def _others(found: Sequence[ShimTrial]) -> Rows:
    rows: list[list[str]] = [
        ["way", "runs", "cut: longest pause, ms", "stopped for good", "connect(), us", "messages a second"]
    ]
    for way in _ways(found, *_OTHERS):
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


def _plots(found: Sequence[ShimTrial]) -> list[Dots]:
    plots = []
    for size in SIZES:
        of = [trial for trial in found if (trial.measure, trial.size) == ("transfer", size)]
        of.sort(key=lambda trial: trial.loss)
        kinds = {way: partial(_seconds, way) for way in _ways(of, "transfer")}
        caption = f"{size // 1000:,} KB: a dot for each run."
        plots += [Dots.of(caption, "s", of, lambda trial: f"{trial.loss:.0%} lost", kinds)] if of else []
    return plots


def _seconds(way: str, trial: ShimTrial) -> Sequence[float | None]:
    return [trial.value] if trial.way == way else []


def page_of(found: Sequence[ShimTrial]) -> Page:
    """Return the page."""
    load = max(trial.load_average for trial in found)
    sections = []
    if _ways(found, *_OTHERS):
        text = (
            "A server sends 1,000 bytes every 5 ms; after 3 s the cable of the address that the client "
            f"connected to is cut. Rules with `rto_min_ms = {FAST_RTO_MIN_MS}`; MPTCP has the second "
            "addresses as its endpoints. Without a fault: the time of a connect(), and messages of 100 "
            "bytes, each after the answer to the last."
        )
        sections.append(Section("A cable of two is cut", text, _others(found)))
    if plots := _plots(found):
        text = (
            f"Seconds from connect() to the last byte: {RATE_BPS / 1e6:g} Mbit/s, {ROUND_TRIP_MS:g} ms, a "
            f"queue of {QUEUE} packets, losses both ways. Median, and the quarters beside it; `runs` in the "
            "order of the columns where they differ. There is one path: the gain of MPTCP and SCTP by a "
            "second one is not in these figures. `rto_min_ms = 200`, as TCP's in Linux. MPTCP uses CUBIC. "
            "SCTP's congestion control is that of RFC 9260, which is Reno's; BBR takes a loss for no sign of "
            "a full queue. A run by the shim that fell back to TCP would count as failed."
        )
        sections.append(Section("Transfers over a link that loses", text, _transfers(found), plots))
        late = sorted(trial.late for trial in found if trial.measure == "transfer")
        text = (
            "Many links ran side by side, each in hosts of its own. The median run had "
            f"{percentile(late, 50):.2%} of its packets delivered more than 1 ms late, the worst run "
            f"{late[-1]:.1%}. Some transfers of {_ALONE_SIZE // 1000} KB were also run alone, with the same "
            "losses."
        )
        alone = _beside_and_alone(found)
        sections.append(Section("Side by side and alone", text, alone if len(alone) > 1 else ()))
    intro = (
        "The same program, which knows TCP only: by TCP, Multipath TCP, and under `sctp-run --shim` by SCTP. "
        f"The load average of the machine was up to {load:.1f}."
    )
    return Page("TCP programs over SCTP", intro, sections)


def figures(found: Sequence[ShimTrial]) -> dict[str, Any]:
    """Return the median of each measurement."""
    of: dict[str, list[float]] = {}
    for trial in found:
        of.setdefault(trial.name, []).extend([] if trial.value is None else [trial.value])
    return {"medians": {name: percentile(each, 50) if each else None for name, each in of.items()}}


def _read(fields: dict[str, Any]) -> ShimTrial:
    return ShimTrial(**fields)


REPORT: Final = LabReport(_read, figures, page_of, problems)
