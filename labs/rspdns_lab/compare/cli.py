"""The command `rspdns-lab compare`."""

from collections.abc import Iterable, Sequence

import click
from daemon_kit.commands import example

from rspdns_lab.compare.lab import TITLES
from rspdns_lab.compare.report import figures, measurement, page_of
from rspdns_lab.compare.run import FAULTS, StreamTrial, run_compare
from rspdns_lab.ending import say
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.trials import LabReport, run_lab, trials_left, trials_option

_QUICK_SECONDS = 8


@click.command(epilog=example("rspdns-lab compare --fault power-cut --quick"))
@click.option("--fault", "faults", multiple=True, type=click.Choice(list(FAULTS)), help="Only this fault.")
@click.option(
    "--approach",
    "approaches",
    multiple=True,
    type=click.Choice(list(TITLES)),
    metavar="NAME",
    help=f"Only this approach; may be repeated: {', '.join(TITLES)}.",
)
@trials_option(1, "Trials of each fault.")
@click.option(
    "--seconds", type=click.IntRange(5, 600), default=130, show_default=True, help="Watched after each fault."
)
@click.option("--quick", is_flag=True, help=f"{_QUICK_SECONDS} s, and without what is slow by default.")
@report_options
def compare(
    faults: Sequence[str],
    approaches: Sequence[str],
    trials: int,
    seconds: int,
    quick: bool,
    report: ReportFiles,
) -> None:
    """Send synthetic VoIP to a server that is handed over or loses its power: DNS and address takeover.

    Exit status: 0 measured, 2 the lab can't run here.
    """
    keys = [key for key in TITLES if key in approaches or (not approaches and _is_compared(key, quick))]
    seconds = _QUICK_SECONDS if quick else seconds
    options = {"approaches": keys, "seconds": seconds}

    def measure(earlier: Sequence[StreamTrial]) -> Iterable[Sequence[StreamTrial]]:
        plan = trials_left(faults or list(FAULTS), trials, {(each.fault, each.trial) for each in earlier})
        return run_compare(keys, plan, seconds, say) if plan else ()

    run_lab(report, LabReport(measurement, figures, page_of), options, measure)


def _is_compared(key: str, quick: bool) -> bool:
    """Tell whether this belongs to a run that names no approach. A static zone never converges by itself."""
    return key != "static" and not (quick and key.endswith("-default"))
