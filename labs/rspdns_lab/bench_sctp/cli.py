"""The command `rspdns-lab bench-sctp`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import click

from rspdns_lab.bench_sctp.figures import (
    AIMS,
    MEASUREMENTS,
    TITLES,
    Measured,
    as_markdown,
    figures_of,
    missed,
    read_measured,
)
from rspdns_lab.bench_sctp.report import write_html
from rspdns_lab.bench_sctp.run import QUICK, Extent, run_sctp_bench
from rspdns_lab.net.network import network_prefix
from rspdns_lab.net.privilege import become_root
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.told_plainly import say, told_plainly

_EXIT_MISSED = 1


@click.command("bench-sctp")
@click.option("--quick", is_flag=True, help="Little of everything, in seconds; the figures say less.")
@click.option("--soak", type=click.IntRange(1), help="Requests of the soak; 100,000, quick 10,000.")
@click.option("--only", multiple=True, type=click.Choice(MEASUREMENTS), help="Not all, but this; repeatable.")
@report_options
def bench_sctp(quick: bool, soak: int | None, only: Sequence[str], report: ReportFiles) -> None:
    """Measure this host's SCTP (sctpd's, or the kernel's) beside kernel UDP and TCP.

    Exit status: 0 every aim reached, 1 one missed, 2 it can't run here.
    """
    extent = QUICK if quick else Extent()
    extent = extent if soak is None else replace(extent, soak=soak)
    options = {"quick": quick, "soak": extent.soak}
    found: list[Measured] = []

    def take(one: Measured) -> None:
        found.append(one)
        report.keep(_as_json(found), options)

    with told_plainly(lambda: as_markdown(figures_of(found)) if found else ""):
        become_root(sys.argv[1:])
        found += report.earlier(read_measured, options)
        done = {one.measurement for one in found}
        left = [name for name in only or MEASUREMENTS if name not in done]
        if left:
            run_sctp_bench(network_prefix(), extent, left, say, take)
        report.show(write_html, found)
    figures = figures_of(found)
    click.echo(as_markdown(figures))
    for key in missed(figures):
        say(f"missed: {TITLES[key]}: {figures[key]:.2f}, aim {' '.join(map(str, AIMS[key]))}")
    sys.exit(_EXIT_MISSED if missed(figures) else 0)


def _as_json(found: Sequence[Measured]) -> dict[str, Any]:
    return {**figures_of(found), "trials": [asdict(one) for one in found]}
