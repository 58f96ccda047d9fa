"""The command `rspdns-lab compare`."""

import sys
from collections.abc import Sequence

import click

from rspdns_lab.compare.lab import TITLES, CompareLab
from rspdns_lab.compare.report import as_json, as_markdown, measurement, summaries, write_html
from rspdns_lab.compare.run import FAULTS, Measurement, run_fault, undo_fault
from rspdns_lab.compare.voip import CODECS, FRAMINGS
from rspdns_lab.net.privilege import become_root
from rspdns_lab.report.files import ReportFiles, report_options, trials_left
from rspdns_lab.told_plainly import say, told_plainly

_QUICK_SECONDS = 8


@click.command()
@click.option("--fault", "faults", multiple=True, type=click.Choice(list(FAULTS)), help="Only this one.")
@click.option(
    "--approach",
    "approaches",
    multiple=True,
    type=click.Choice(list(TITLES)),
    metavar="NAME",
    help=f"Only this, or these: {', '.join(TITLES)}.",
)
@click.option("--trials", type=click.IntRange(1, 1000), default=1, show_default=True, help="Of each fault.")
@click.option("--calls", type=click.IntRange(1, 100), default=2, show_default=True, help="In each stream.")
@click.option("--codec", type=click.Choice(list(CODECS)), default="g711", show_default=True)
@click.option("--framing", type=click.Choice(list(FRAMINGS)), default="rtp", show_default=True)
@click.option(
    "--seconds", type=click.IntRange(5, 600), default=130, show_default=True, help="Watched after each fault."
)
@click.option("--quick", is_flag=True, help=f"{_QUICK_SECONDS} s, and without what is slow by default.")
@report_options
def compare(
    faults: Sequence[str],
    approaches: Sequence[str],
    trials: int,
    calls: int,
    codec: str,
    framing: str,
    seconds: int,
    quick: bool,
    report: ReportFiles,
) -> None:
    """Send synthetic VoIP to a server that is handed over or loses its power: DNS and address takeover.

    Exit status: 0 measured, 2 the lab can't run here.
    """
    keys = [key for key in TITLES if key in approaches or (not approaches and _is_compared(key, quick))]
    seconds = _QUICK_SECONDS if quick else seconds
    carrier = (calls, codec, framing)
    options = {"approaches": keys, "calls": calls, "codec": codec, "framing": framing, "seconds": seconds}
    found: list[Measurement] = []
    with told_plainly(lambda: as_markdown(summaries(found)) if found else ""):
        become_root(sys.argv[1:])
        found += report.earlier(measurement, options)
        done = {(one.fault, one.trial) for one in found}
        plan = trials_left(faults or list(FAULTS), trials, done)
        if plan:
            say(f"starting the lab: {', '.join(keys)}; {len(plan)} faults to go")
            with CompareLab(keys) as lab:
                lab.start()
                for place, (fault, trial) in enumerate(plan):
                    if place:
                        undo_fault(lab, plan[place - 1][0])
                    found += run_fault(lab, fault, trial, seconds, carrier, say)
                    report.keep(as_json(carrier, found), options)
        report.show(write_html, found)
    click.echo(as_markdown(summaries(found)))


def _is_compared(key: str, quick: bool) -> bool:
    """Tell whether this belongs to a run that names no approach. A static zone never converges by itself."""
    return key != "static" and not (quick and key.endswith("-default"))
