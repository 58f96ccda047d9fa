"""The command `rspdns-lab loss`."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from rspdns_lab.loss.report import page_of, table
from rspdns_lab.loss.run import LossPart, read_part, run_loss, sum_up
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.html import markdown_table
from rspdns_lab.report.trials import LabReport, run_lab
from rspdns_lab.told_plainly import say

_LEAST_S = 1.0
"""So little is not worth a lab."""
_QUICK_S = 10.0


@click.command()
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=600, show_default=True)
@click.option("--quick", is_flag=True, help=f"{_QUICK_S:g} s only.")
@click.option("--percent", type=click.FloatRange(0.01, 50), default=1.0, show_default=True)
@click.option("--untuned", is_flag=True, help="With the SCTP timers of an untouched kernel, to compare.")
@report_options
def loss(seconds: float, quick: bool, percent: float, untuned: bool, report: ReportFiles) -> None:
    """Lose packets on every cable, and see whether a live server is removed.

    Exit status: 0 none was removed, 1 one was, 2 the lab can't run here.
    """
    seconds = _QUICK_S if quick else seconds
    options = {"percent": percent, "untuned": untuned}

    def measure(earlier: Sequence[LossPart]) -> Iterable[Sequence[LossPart]]:
        left_s = seconds - sum(one.seconds for one in earlier)
        if earlier and left_s < _LEAST_S:
            return ()
        return ([part] for part in run_loss(left_s, percent, tuned=not untuned, say=say))

    run_lab(report, REPORT, options, measure)


def _as_markdown(found: Sequence[LossPart]) -> str:
    return markdown_table(table(sum_up(found))) if found else ""


def _figures(found: Sequence[LossPart]) -> dict[str, Any]:
    return sum_up(found).as_json() if found else {}


def _problems(found: Sequence[LossPart]) -> list[str]:
    return [] if found and sum_up(found).ok else ["a live server was lost, or nothing was measured"]


REPORT: Final = LabReport(read_part, _figures, _as_markdown, page_of, _problems)
