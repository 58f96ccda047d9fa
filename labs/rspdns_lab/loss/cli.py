"""The command `rspdns-lab loss`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from rspdns_lab.loss.report import table, write_html
from rspdns_lab.loss.run import LossOutcome, read_outcome, run_loss, sum_up
from rspdns_lab.net.privilege import become_root
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.html import markdown_table
from rspdns_lab.told_plainly import say, told_plainly

_EXIT_LOST = 1
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
    found: list[LossOutcome] = []
    with told_plainly(lambda: _as_markdown(found)):
        become_root(sys.argv[1:])
        earlier = report.earlier(read_outcome, options)
        found += earlier
        left_s = seconds - sum(one.seconds for one in earlier)

        def tell(outcome: LossOutcome) -> None:
            found[:] = [*earlier, outcome]
            report.keep(_as_json(found), options)

        if left_s >= _LEAST_S or not earlier:
            tell(run_loss(left_s, percent, tuned=not untuned, say=say, tell=tell))
        report.show(write_html, found)
    click.echo(_as_markdown(found))
    sys.exit(0 if sum_up(found).ok else _EXIT_LOST)


def _as_markdown(found: Sequence[LossOutcome]) -> str:
    return markdown_table(table(sum_up(found))) if found else ""


def _as_json(found: Sequence[LossOutcome]) -> dict[str, Any]:
    return {**sum_up(found).as_json(), "trials": [asdict(one) for one in found]}
