"""The command `rspdns-lab bench`."""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from rspdns_lab.bench import flood, registrars, scale
from rspdns_lab.bench.report import as_json, as_markdown, write_html
from rspdns_lab.bench.run import PARTS, Order, Result, check, read_result, run_bench
from rspdns_lab.bench.strangers import KINDS, QUICK_KINDS
from rspdns_lab.bench.variants import BY_KEY
from rspdns_lab.net.network import network_prefix
from rspdns_lab.net.privilege import become_root
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.told_plainly import say, tell_of_full_disk, told_plainly

_MOST_ELEMENTS = 10_000
_QUICK_TRIALS = 10


@click.command()
@click.option("--only", "parts", multiple=True, type=click.Choice(PARTS), help="Measure only this, or these.")
@click.option(
    "--variant",
    "variants",
    multiple=True,
    type=click.Choice(list(BY_KEY)),
    metavar="KEY",
    help=f"Ask only this, or these: {', '.join(BY_KEY)}.",
)
@click.option("--rounds", type=click.IntRange(1, 100), default=5, show_default=True)
@click.option(
    "--seconds",
    type=click.IntRange(1, 600),
    default=5,
    show_default=True,
    help="Each is asked, in a round; each size is watched three times as long.",
)
@click.option(
    "--trials",
    type=click.IntRange(0, 100_000),
    default=1000,
    show_default=True,
    help="Changes watched until the last wrong answer, idle and loaded; 0: none.",
)
@click.option(
    "--most-elements",
    type=click.IntRange(1, _MOST_ELEMENTS),
    default=_MOST_ELEMENTS,
    show_default=True,
    help="Leave larger sizes out.",
)
@click.option(
    "--quick",
    is_flag=True,
    help=f"One round of 1 s, {_QUICK_TRIALS} changes, one size; the figures say less.",
)
@report_options
def bench(
    parts: Sequence[str],
    variants: Sequence[str],
    rounds: int,
    seconds: int,
    trials: int,
    most_elements: int,
    quick: bool,
    report: ReportFiles,
) -> None:
    """Measure speed: questions answered beside other name servers, static and live; from a change to the last
    wrong answer; memory, processor time and convergence with up to 1,000 pools and 10,000 pool elements;
    how many of these three registrars bear; look-ups while strangers fill another pool.

    Exit status: 0 measured (the tables say what is aimed at), 2 it can't run here.
    """
    if quick:
        rounds, seconds, trials = 1, 1, min(trials, _QUICK_TRIALS)
    order = Order(
        parts=parts or PARTS,
        variants=[key for key in BY_KEY if not variants or key in variants],
        rounds=rounds,
        seconds=seconds,
        trials=trials,
        sizes=[
            (pools, members)
            for pools, members in (scale.QUICK_SIZES if quick else scale.SIZES)
            if pools * members <= most_elements
        ],
        registrars=registrars.plan(most_elements, quick=quick),
        extent=scale.QUICK
        if quick
        else replace(scale.FULL, look_s=3.0 * seconds, trials=max(1, min(30, trials))),
        labels=flood.QUICK_LABELS if quick else flood.LABELS,
        floods_per_s=flood.QUICK_FLOODS_PER_S if quick else flood.FLOODS_PER_S,
        strangers=QUICK_KINDS if quick else KINDS,
    )
    options = {"quick": quick, "seconds": seconds, "trials": trials}
    found: list[Result] = []
    with told_plainly(lambda: as_markdown(found)):
        become_root(sys.argv[1:])
        found += report.earlier(read_result, options)
        check(order)
        with tempfile.TemporaryDirectory(prefix=f"rspdns-lab-{os.getpid()}-") as folder:
            try:
                for results in run_bench(order, list(found), Path(folder), network_prefix(), say):
                    found += results
                    report.keep(as_json(found), options)
            finally:
                tell_of_full_disk(Path(folder))
        report.show(write_html, found)
    click.echo(as_markdown(found))
