"""The command `rspdns-lab scale`: costs measured on real registrars, sizes simulated with them, bounds."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import click
from daemon_kit.commands import example

from rspdns_lab.ending import say
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import network_prefix
from rspdns_lab.net.preconditions import check_programs
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.trials import LabReport, run_lab
from rspdns_lab.scale.figures import (
    BUSY_BOUND,
    CHANGES_BOUND,
    SEEN_BOUND_MS,
    TRIAL,
    MessageCosts,
    ScaleOutcome,
    ScaleSize,
    ScaleTrial,
)
from rspdns_lab.scale.page import scale_page
from rspdns_lab.simulate.cli import worker_environment

CHANGES_CELLS: Final = 34
"""The bound of changes above holds for this number of cells at most."""
SIZES: Final = (
    ScaleSize(34, 3000, 1000, 20, steady_s=120.0, full_s=10.0),
    ScaleSize(334, 3000, 1000, 5, reregistration_ms=10_000, steady_s=60.0, full_s=10.0, removals=20),
)
QUICK: Final = (ScaleSize(8, 60, 40, 6, places=6, steady_s=20.0, full_s=8.0, removals=6),)


@click.command(epilog=example("rspdns-lab scale --quick"))
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--costs",
    "costs_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The --json of an earlier run: its costs count, and nothing is measured.",
)
@click.option("--only-costs", is_flag=True, help="Measure, and simulate nothing.")
@click.option("--quick", is_flag=True, help="8 cells of 60 servers, 40 name servers: a minute.")
@report_options
def scale(seed: int, costs_file: Path | None, only_costs: bool, quick: bool, report: ReportFiles) -> None:
    """Measure what messages cost real registrars, then simulate 100,000 and 1,000,000 servers in cells.

    34 and 334 cells of 3,000 servers, 1,000 name servers in 30 places: load, churn, cells that are lost, a
    region that is cut off, on a virtual clock. The same costs and seed do the same each time.

    Exit status: 0 the promises were kept, 1 one was broken, 2 the lab can't run here.
    """
    sizes = [] if only_costs else [replace(size, seed=seed) for size in (QUICK if quick else SIZES)]

    def measure(earlier: Sequence[ScaleTrial]) -> Iterable[Sequence[ScaleTrial]]:
        costs = next((each for each in earlier if isinstance(each, MessageCosts)), None)
        if costs is None:
            costs = _measured(quick=quick) if costs_file is None else read_costs(costs_file)
            yield [costs]
        done = [each.size for each in earlier if isinstance(each, ScaleOutcome)]
        for size in sizes:
            if size not in done:
                say(f"simulating {size.all_servers:,} servers in {size.cells} cells")
                yield [simulated(size, costs)]

    run_lab(report, REPORT, {"seed": seed, "quick": quick}, measure)


def _measured(*, quick: bool) -> MessageCosts:
    from rspdns_lab.scale.costs import measure_costs

    check_programs()
    with tempfile.TemporaryDirectory(prefix=f"rspdns-lab-{os.getpid()}-") as folder:
        extent = (4, 100, 2.0) if quick else (10, 1000, 15.0)
        return measure_costs(network_prefix(), Path(folder), *extent, say)


def read_costs(file: Path) -> MessageCosts:
    """The costs in the report of an earlier run. Raises LabError."""
    try:
        trials = map(TRIAL.validate_python, json.loads(file.read_text())["trials"])
        return next(trial for trial in trials if isinstance(trial, MessageCosts))
    except (ValueError, LookupError, TypeError, StopIteration):
        words = f"{file} is no report of `rspdns-lab scale`: name the --json of an earlier run"
        raise LabError(words) from None


def simulated(size: ScaleSize, costs: MessageCosts) -> ScaleOutcome:
    """Simulate a size, in a process of its own. Raises LabError."""
    asked = json.dumps({"size": asdict(size), "costs": asdict(costs)})
    command = [sys.executable, "-m", "rspdns_lab.scale"]
    done = subprocess.run(
        command, env=worker_environment(), input=asked, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"the simulation failed: {done.stderr.strip()[-2000:]}")
    outcome = TRIAL.validate_json(done.stdout)
    assert isinstance(outcome, ScaleOutcome)  # noqa: S101 - it was made from one
    return outcome


def problems(trials: Sequence[ScaleTrial]) -> list[str]:
    """The broken promises, in words."""
    return [problem for each in trials if isinstance(each, ScaleOutcome) for problem in _problems(each)]


def _problems(outcome: ScaleOutcome) -> Iterator[str]:
    name = f"{outcome.size.cells} cells"
    for each in outcome.registrars:
        if each.worst > BUSY_BOUND:
            yield f"{name}: registrar {each.number} {each.where} is busy for {each.worst:.0%} of ten seconds"
    if outcome.size.cells <= CHANGES_CELLS and outcome.changes_per_s >= CHANGES_BOUND:
        yield f"{name}: {outcome.changes_per_s:.1f} changes a second above"
    if (worst_ms := percentile(outcome.seen_ms, 99)) > SEEN_BOUND_MS:
        yield f"{name}: a lost cell is named for {worst_ms:.0f} ms (p99)"
    if missing := outcome.size.sample * len(outcome.removals) - len(outcome.seen_ms):
        yield f"{name}: {missing} times a name server went on naming a lost cell"
    if outcome.wrong:
        yield f"{name}: living cells were lost {len(outcome.wrong)} times, first at {outcome.wrong[0]}"
    if (worst_ms := percentile(outcome.cut.gone_ms, 99)) > SEEN_BOUND_MS:
        yield f"{name}: a cell of a region that is cut off is named outside for {worst_ms:.0f} ms (p99)"
    if not outcome.cut.back_ms:
        yield f"{name}: not every name server had every cell again after the region was back"


def _figures(trials: Sequence[ScaleTrial]) -> dict[str, float]:
    return {
        f"{each.size.cells}_{key}": value
        for each in trials
        if isinstance(each, ScaleOutcome)
        for key, value in (
            ("busiest", max(load.worst for load in each.registrars)),
            ("changes_per_s", each.changes_per_s),
            ("seen_p99_ms", percentile(each.seen_ms, 99)),
            ("wrong", float(len(each.wrong))),
        )
    }


REPORT: Final[LabReport[ScaleTrial]] = LabReport(TRIAL.validate_python, _figures, scale_page, problems)
