"""The command `rspdns-lab voip`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from daemon_kit.commands import example
from daemon_kit.config_file import ConfigurationErrors, load

from rspdns_lab.ending import EXIT_CANNOT_RUN, say
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.trials import LabReport, run_lab, trials_left
from rspdns_lab.voip.configuration import VoipConfiguration
from rspdns_lab.voip.paths import PAIRS
from rspdns_lab.voip.quality import CODECS, MEDIA
from rspdns_lab.voip.report import figures, page_of, problems
from rspdns_lab.voip.run import FAULTS, VoipTrial, generator, read_trial, run_calls, run_failovers, run_sweep


@click.command(epilog=example("rspdns-lab voip --firewalls --quick"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--firewalls", is_flag=True, help="Two firewalls in the path: fail-overs, then a load sweep.")
@click.option("--pair", "pairs", multiple=True, type=click.Choice(list(PAIRS)), help="Only these firewalls.")
@click.option("--fault", "faults", multiple=True, type=click.Choice(list(FAULTS)), help="Only this fault.")
@click.option("--trials", type=click.IntRange(1, 1000), help="Trials of each fault.  [default: 7]")
@click.option("--calls", type=click.IntRange(1, 5000), help="Calls at each fault.  [default: 816]")
@click.option("--seconds", type=click.IntRange(2, 600), help="Time after a fault.  [default: 5]")
@click.option("--quick", is_flag=True, help="Little of everything, in less than two minutes.")
@report_options
def voip(
    file: Path | None,
    firewalls: bool,
    pairs: Sequence[str],
    faults: Sequence[str],
    trials: int | None,
    calls: int | None,
    seconds: int | None,
    quick: bool,
    report: ReportFiles,
) -> None:
    """Make synthetic calls, up to 5,000 at a time, and measure how they are heard.

    FILE has the runs of calls, and the two ends of a path of your own. Without it: every codec in every
    medium, over a cable. With --firewalls: then through two stateful firewalls, of which the first fails.

    Exit status: 0 measured, 1 a trial is spoilt, 2 the lab can't run here, or FILE has errors.
    """
    if (firewalls and file) or ((pairs or faults or trials or calls or seconds) and not firewalls):
        raise click.UsageError("FILE has runs without --firewalls; the other options belong to --firewalls.")
    try:
        configuration = load(file, VoipConfiguration) if file else _all_codecs(1 if quick or firewalls else 5)
    except ConfigurationErrors as errors:
        click.echo(errors, err=True)
        raise SystemExit(EXIT_CANNOT_RUN) from None
    is_whole = not (pairs or faults)
    calls, seconds, trials = calls or 816, seconds or 5, trials or 7
    if quick:
        calls, seconds, trials = min(calls, 100), 4, 1
        pairs = pairs or ("sync", "no-sync")
    wanted = [f"{pair} {fault}" for fault in faults or FAULTS for pair in pairs or PAIRS]
    runs = [f"{run.title}, {run.duration_s} s" for run in configuration.run]
    options = {"firewalls": firewalls, "calls": calls, "seconds": seconds} if firewalls else {"runs": runs}

    def measure(earlier: Sequence[VoipTrial]) -> Iterable[Sequence[VoipTrial]]:
        done = {(trial.name, trial.trial) for trial in earlier}
        with generator() as program:
            if is_whole:
                all_runs = enumerate(configuration.run, start=1)
                left = [(number, run) for number, run in all_runs if (run.title, number) not in done]
                yield from run_calls(program, left, configuration.path, say)
            if firewalls:
                yield from run_failovers(program, trials_left(wanted, trials, done), calls, seconds, say)
            if firewalls and is_whole:
                sweep = [trial for trial in earlier if trial.part == "sweep"]
                yield from run_sweep(program, sweep, *((200, 2) if quick else (5000, 5)), say)

    run_lab(report, LabReport(read_trial, figures, page_of, problems), options, measure)


def _all_codecs(seconds: int) -> VoipConfiguration:
    runs = [
        {"codec": codec, "medium": medium, "duration_s": seconds, "rtcp": medium == "rtp"}
        for codec in CODECS
        for medium in MEDIA
    ]
    return VoipConfiguration.model_validate({"run": runs})
