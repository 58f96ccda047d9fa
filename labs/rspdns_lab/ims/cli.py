"""The command `rspdns-lab ims`."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

import click
from daemon_kit.commands import example

from rspdns_lab.ending import say
from rspdns_lab.ims import ppu
from rspdns_lab.ims import shim as shim_calls
from rspdns_lab.ims.calls import CallTrial
from rspdns_lab.ims.faults import FAULTS
from rspdns_lab.ims.lab import APPROACHES, ImsLab
from rspdns_lab.ims.report import page_of, problems, summaries
from rspdns_lab.ims.run import run_ims
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.trials import LabReport, run_lab, trials_left, trials_option

_NAMES = [fault.name for fault in FAULTS]
_QUICK_SECONDS = 6
_WAYS_AT_ONCE = 8
"""Each has a Kamailio, an agent and a SIPp; more at once measure the machine."""
_KEYS = (*APPROACHES, *(way.key for way in ppu.WAYS))


@click.command(epilog=example("rspdns-lab ims --fault as-killed --quick --html calls.html"))
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice(_NAMES),
    metavar="FAULT",
    help=f"Only this fault; may be repeated: {', '.join(_NAMES)}.",
)
@click.option(
    "--approach", "approaches", multiple=True, type=click.Choice(APPROACHES), help="Only this approach."
)
@click.option(
    "--ppu",
    "ppu_wanted",
    is_flag=True,
    help="Compare what ppu-agent does beside the S-CSCF, over UDP and TCP. Not with --approach.",
)
@click.option(
    "--way",
    "ways",
    multiple=True,
    type=click.Choice([way.key for way in ppu.WAYS]),
    metavar="WAY",
    help=f"With --ppu: only this, of {', '.join(way.key for way in ppu.WAYS)}.",
)
@click.option(
    "--shim",
    "shim_wanted",
    is_flag=True,
    help="Pull a cable between an S-CSCF and a server that have two, with and without sctp-run --shim.",
)
@click.option(
    "--transport",
    type=click.Choice(["udp", "tcp"]),
    default="udp",
    show_default=True,
    help="The transport of the calls: --shim needs tcp, and --ppu has both.",
)
@trials_option(1, "Trials of each fault.")
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
    ppu_wanted: bool,
    ways: Sequence[str],
    shim_wanted: bool,
    transport: str,
    trials: int,
    rate: int,
    seconds: int,
    quick: bool,
    report: ReportFiles,
) -> None:
    """Place calls through an S-CSCF while application servers fail, with every way to serve DNS side by side.

    Exit status: 0 rspdns kept its bounds, 1 it broke one, 2 the lab can't run here.
    """
    if approaches and ppu_wanted:
        raise click.UsageError("--approach chooses who serves DNS, and --ppu compares ppu-agents: take --way")
    if ways and not ppu_wanted:
        raise click.UsageError("--way is of --ppu: give both")
    if shim_wanted != (transport == "tcp"):
        raise click.UsageError(
            "--shim is for TCP: give --transport tcp with it, and neither without the other"
        )
    if shim_wanted and (approaches or ppu_wanted or faults):
        raise click.UsageError("--shim has one fault, no DNS and no agent: give it alone")
    seconds = _QUICK_SECONDS if quick else seconds
    if shim_wanted:
        _run_shim(report, trials, rate, seconds)
    keys = [key for key in APPROACHES if not approaches or key in approaches]
    wanted = [fault for fault in FAULTS if not faults or fault.name in faults]
    wanted_ways = [way for way in ppu.WAYS if not ways or way.key in ways]
    keys = [way.key for way in wanted_ways] if ppu_wanted else keys
    options = {"approaches": keys, "rate": rate, "seconds": seconds}

    def measure(earlier: Sequence[CallTrial]) -> Iterable[Sequence[CallTrial]]:
        groups = [
            wanted_ways[first : first + _WAYS_AT_ONCE] for first in range(0, len(wanted_ways), _WAYS_AT_ONCE)
        ]
        for group in groups if ppu_wanted else [[]]:
            of_group = {way.key for way in group} if ppu_wanted else set(keys)
            done = {(trial.fault, trial.trial) for trial in earlier if trial.approach in of_group}
            if plan := trials_left(wanted, trials, done, lambda fault: fault.name):
                lab = ppu.PpuLab(group) if ppu_wanted else ImsLab(keys)
                yield from run_ims(lab, plan, rate, seconds, say)

    run_lab(report, PPU_REPORT if ppu_wanted else REPORT, options, measure)


def _run_shim(report: ReportFiles, trials: int, rate: int, seconds: int) -> None:
    def measure(earlier: Sequence[CallTrial]) -> Iterable[Sequence[CallTrial]]:
        done = {(trial.fault, trial.trial) for trial in earlier}
        for _, trial in trials_left([shim_calls.FAULT], trials, done):
            yield shim_calls.run_shim_trial(trial, rate, seconds, say)

    run_lab(report, SHIM_REPORT, {"approaches": shim_calls.KEYS, "rate": rate, "seconds": seconds}, measure)


def _figures(found: Sequence[CallTrial]) -> dict[str, Any]:
    return {"results": [asdict(row) for row in summaries(found)]}


def _measurement(fields: dict[str, Any]) -> CallTrial:
    known = fields["fault"] in _NAMES and fields["approach"] in _KEYS
    if not known and (fields["fault"] != shim_calls.FAULT or fields["approach"] not in shim_calls.KEYS):
        raise LookupError("a measurement that there isn't")
    calls = [(start_s, delay_ms, server) for start_s, delay_ms, server in fields["calls"]]
    return CallTrial(**{**fields, "calls": calls})


REPORT: Final = LabReport(_measurement, _figures, page_of, problems)
SHIM_REPORT: Final = LabReport(_measurement, shim_calls.figures, shim_calls.page_of, shim_calls.problems)
PPU_REPORT: Final = LabReport(_measurement, ppu.figures, ppu.page_of, ppu.problems)
