"""The command `rspdns-lab compare`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from rspdns_lab.compare.lab import TITLES, CompareLab
from rspdns_lab.compare.report import as_json, as_markdown, measurement, summaries, write_html
from rspdns_lab.compare.run import FAULTS, Measurement, run_fault
from rspdns_lab.compare.voip import CODECS, FRAMINGS
from rspdns_lab.errors import LabError
from rspdns_lab.privilege import become_root
from rspdns_lab.results_file import read_trials, write_results
from rspdns_lab.told_plainly import told_plainly

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
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Every trial; kept up as it runs.")
@click.option("--resume", is_flag=True, help="Go on where the run that wrote the JSON file ended.")
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="One page with tables and plots.")
def compare(
    faults: Sequence[str],
    approaches: Sequence[str],
    trials: int,
    calls: int,
    codec: str,
    framing: str,
    seconds: int,
    quick: bool,
    json_file: Path | None,
    resume: bool,
    html_file: Path | None,
) -> None:
    """Send synthetic VoIP to a server that is handed over or loses its power: DNS and address takeover.

    Exit status: 0 measured, 2 the lab can't run here.
    """
    if resume and json_file is None:
        raise click.UsageError("--resume needs --json FILE, where the earlier run's results are")
    console = Console(stderr=True, highlight=False)
    keys = [key for key in TITLES if key in approaches or (not approaches and _is_compared(key, quick))]
    seconds = _QUICK_SECONDS if quick else seconds
    carrier = (calls, codec, framing)
    with told_plainly():
        become_root(sys.argv[1:])
        found = _read(json_file) if resume else []
        done = {(one.fault, one.trial) for one in found}
        plan = [(fault, trial) for trial in range(1, trials + 1) for fault in faults or FAULTS]
        plan = [one for one in plan if one not in done]
        if plan:
            console.print(f"starting the lab: {', '.join(keys)}; {len(plan)} faults to go")
            with CompareLab(keys) as lab:
                lab.start()
                for fault, trial in plan:
                    found += run_fault(lab, fault, trial, seconds, carrier, console.print)
                    write_results(json_file, as_json(carrier, found))
        if html_file is not None:
            write_html(html_file, found)
    click.echo(as_markdown(summaries(found)))


def _read(file: Path | None) -> list[Measurement]:
    """Return the trials of an earlier run. Raises LabError when the file holds none."""
    try:
        return [measurement(one) for one in read_trials(file)]
    except (TypeError, LookupError):
        raise LabError(f"{file} is not a report of rspdns-lab compare; name another file") from None


def _is_compared(key: str, quick: bool) -> bool:
    """Tell whether this belongs to a run that names no approach. A static zone never converges by itself."""
    return key != "static" and not (quick and key.endswith("-default"))
