"""The command `rspdns-lab chaos`."""

from collections.abc import Sequence
from typing import Any

import click
from daemon_kit.commands import example

from rspdns_lab.chain.plan import FOLLOWS, MOST_MEMBERS, FollowMethod
from rspdns_lab.chaos.ppu import PPU_FAULTS, ppu_report, run_ppu_chaos
from rspdns_lab.chaos.report import page_of
from rspdns_lab.chaos.run import (
    ALL_FAULTS,
    QUICK_FASTPATH_FAULTS,
    QUICK_FAULTS,
    SIZES,
    Order,
    run_chaos,
)
from rspdns_lab.chaos.summary import CaseTrial, read_trial
from rspdns_lab.ending import say
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page
from rspdns_lab.report.trials import LabReport, run_lab, trials_option


@click.command(epilog=example("rspdns-lab chaos --fault as-killed --trials 20"))
@trials_option(10, "Trials of each fault.")
@click.option(
    "--quick", is_flag=True, help=f"One trial of {', '.join(QUICK_FAULTS)}, in a pool of 3, followed by ENRP."
)
@click.option(
    "--fault",
    "names",
    multiple=True,
    type=click.Choice([*(fault.name for fault in ALL_FAULTS), *(fault.name for fault in PPU_FAULTS)]),
    metavar="FAULT",
    help=f"Only this fault; may be repeated: {', '.join(fault.name for fault in ALL_FAULTS)}.",
)
@click.option(
    "--members",
    "sizes",
    multiple=True,
    type=click.IntRange(2, MOST_MEMBERS),
    help="Only pools of this size.",
)
@click.option("--follow", "follows", multiple=True, type=click.Choice(FOLLOWS),
              help="Only with registrars followed by ENRP, or only with registrars polled.")  # fmt: skip
@click.option(
    "--fastpath",
    is_flag=True,
    help="Each fault twice, without and with answers from the kernel, and the faults of rspdns-fastpath.",
)
@click.option(
    "--ppu",
    is_flag=True,
    help=f"The faults of ppu-agent instead: {', '.join(fault.name for fault in PPU_FAULTS)}.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    help="Labs side by side, not with --ppu; each needs most of a processor, or times grow.",
)
@click.option("--slack", type=click.FloatRange(1, 1000), default=1.0, show_default=True,
              help="Multiplies the time bounds, for a busy machine.")  # fmt: skip
@report_options
def chaos(
    trials: int,
    quick: bool,
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    follows: tuple[FollowMethod, ...],
    fastpath: bool,
    ppu: bool,
    jobs: int,
    slack: float,
    report: ReportFiles,
) -> None:
    """Break every part again and again at random moments, and sum up what DNS answered.

    In pools of 2, 3 and 12, and of 8 at two sites or in two handlespaces, with registrars followed by ENRP
    and polled only, unless told otherwise.

    Exit status: 0 all bounds kept, 1 a bound broken, 2 the lab can't run here.
    """
    if ppu:
        few = tuple(fault for fault in PPU_FAULTS if not names or fault.name in names)
        times = 1 if quick else trials
        run_lab(report, ppu_report(slack), {}, lambda earlier: run_ppu_chaos(few, times, earlier, say))
    if quick:
        names = names or (QUICK_FASTPATH_FAULTS if fastpath else QUICK_FAULTS)
        sizes, follows, trials = sizes or (3,), follows or ("enrp",), 1
    faults = tuple(fault for fault in ALL_FAULTS if not names or fault.name in names)
    each_size, each_follow = tuple(dict.fromkeys(sizes)) or SIZES, tuple(dict.fromkeys(follows)) or FOLLOWS
    order = Order(faults, each_size, each_follow, trials, slack, fastpath)
    if names and not fastpath and all(fault.fastpath for fault in faults):
        raise click.UsageError(f"{', '.join(names)}: only with --fastpath")
    if not list(order.cases()):
        raise click.UsageError(f"{', '.join(names)}: not in pools of {', '.join(map(str, each_size))}")

    def problems(found: Sequence[CaseTrial]) -> list[str]:
        rows = order.rows(found)
        broken = [f"{row.case}: {problem}" for row in rows for problem in row.problems]
        return broken if rows else ["there is no trial"]

    def figures(found: Sequence[CaseTrial]) -> dict[str, Any]:
        return {"ok": not problems(found), "faults": [row.as_json() for row in order.rows(found)]}

    def page(found: Sequence[CaseTrial]) -> Page:
        return page_of(order.rows(found), slack)

    lab_report = LabReport(read_trial, figures, page, problems, CaseTrial.as_json)
    run_lab(report, lab_report, {}, lambda earlier: run_chaos(order, earlier, say, jobs))
