"""The command of `make -C sctp-userland bench`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import click
from rspdns_lab.ending import say
from rspdns_lab.net.network import network_prefix
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.trials import LabReport, run_lab

from bench_sctp.report import (
    AIMS,
    MEASUREMENTS,
    TITLES,
    Measured,
    figures_of,
    missed,
    page_of,
    read_measured,
)
from bench_sctp.run import QUICK, Repetitions, run_sctp_bench


@click.command()
@click.option("--quick", is_flag=True, help="Little of everything, in seconds; the figures say less.")
@click.option("--soak", type=click.IntRange(1), help="Requests of the soak; 100,000, quick 10,000.")
@click.option("--only", multiple=True, type=click.Choice(MEASUREMENTS), help="Not all, but this; repeatable.")
@report_options
def bench_sctp(quick: bool, soak: int | None, only: Sequence[str], report: ReportFiles) -> None:
    """Measure this host's SCTP (sctpd's, or the kernel's) beside kernel UDP and TCP.

    Exit status: 0 every aim reached, 1 one missed, 2 it can't run here.
    """
    extent = QUICK if quick else Repetitions()
    extent = extent if soak is None else replace(extent, soak=soak)
    options = {"quick": quick, "soak": extent.soak}

    def measure(earlier: Sequence[Measured]) -> Iterable[Sequence[Measured]]:
        done = {measured.measurement for measured in earlier}
        left = [name for name in only or MEASUREMENTS if name not in done]
        return run_sctp_bench(network_prefix(), extent, left, say) if left else ()

    run_lab(report, REPORT, options, measure)


def _problems(found: Sequence[Measured]) -> list[str]:
    figures = figures_of(found)
    return [
        f"{TITLES[key]}: {figures[key]:.2f}, aim {' '.join(map(str, AIMS[key]))}" for key in missed(figures)
    ]


REPORT: Final = LabReport(read_measured, figures_of, page_of, _problems, house="sctp-userland")
