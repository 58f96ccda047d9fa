"""The command `rspdns-lab ims`."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from pool_user import SLOW_START_S

from rspdns_lab.ims.calls import Measurement
from rspdns_lab.ims.faults import FAULTS
from rspdns_lab.ims.lab import ImsLab
from rspdns_lab.ims.plan import APPROACHES
from rspdns_lab.ims.report import as_markdown, problems, summaries, write_html
from rspdns_lab.ims.run import run_fault
from rspdns_lab.net.privilege import become_root
from rspdns_lab.report.files import ReportFiles, report_options, trials_left
from rspdns_lab.told_plainly import say, told_plainly

_NAMES = [fault.name for fault in FAULTS]
_QUICK_SECONDS = 6


@click.command()
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice(_NAMES),
    metavar="FAULT",
    help=f"Of {', '.join(_NAMES)}.",
)
@click.option("--approach", "approaches", multiple=True, type=click.Choice(APPROACHES), help="Only this one.")
@click.option("--trials", type=click.IntRange(1, 1000), default=1, show_default=True, help="Of each fault.")
@click.option(
    "--rate", type=click.IntRange(1, 100), default=10, show_default=True, help="Calls a second, each."
)
@click.option(
    "--seconds",
    type=click.IntRange(2, 600),
    default=20,
    show_default=True,
    help="Calls go on after the fault.",
)
@click.option("--quick", is_flag=True, help=f"Calls go on for {_QUICK_SECONDS} s only.")
@report_options
def ims(
    faults: Sequence[str],
    approaches: Sequence[str],
    trials: int,
    rate: int,
    seconds: int,
    quick: bool,
    report: ReportFiles,
) -> None:
    """Place calls through an S-CSCF while application servers fail, with every way to serve DNS side by side.

    Exit status: 0 rspdns kept its bounds, 1 it broke one, 2 the lab can't run here.
    """
    seconds = _QUICK_SECONDS if quick else seconds
    keys = [key for key in APPROACHES if not approaches or key in approaches]
    wanted = [fault for fault in FAULTS if not faults or fault.name in faults]
    options = {"approaches": keys, "rate": rate, "seconds": seconds}
    found: list[Measurement] = []
    with told_plainly(lambda: as_markdown(summaries(found))):
        become_root(sys.argv[1:])
        found += report.earlier(_measurement, options)
        done = {(one.fault, one.trial) for one in found}
        plan = trials_left(wanted, trials, done, lambda fault: fault.name)
        if plan:
            say(f"starting the lab: {', '.join(keys)}; {len(plan)} faults to go")
            with ImsLab(keys) as lab:
                lab.start()
                for place, (fault, trial) in enumerate(plan):
                    if place:
                        plan[place - 1][0].undo(lab)
                        lab.wait_until_all_are_named()
                        time.sleep(SLOW_START_S)
                    found += run_fault(lab, fault, trial, rate, seconds, say)
                    report.keep(_as_json(found), options)
        figures = summaries(found)
        report.show(write_html, found)
    click.echo(as_markdown(figures))
    broken = problems(figures)
    for problem in broken:
        click.echo(f"broken: {problem}", err=True)
    sys.exit(1 if broken else 0)


def _as_json(found: Sequence[Measurement]) -> dict[str, Any]:
    return {
        "results": [asdict(one) for one in summaries(found)],
        "trials": [asdict(one) for one in found],
    }


def _measurement(fields: dict[str, Any]) -> Measurement:
    if fields["fault"] not in _NAMES or fields["approach"] not in APPROACHES:
        raise LookupError("a measurement that there isn't")
    calls = [(start_s, delay_ms, server) for start_s, delay_ms, server in fields["calls"]]
    return Measurement(**{**fields, "calls": calls})
