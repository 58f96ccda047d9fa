"""The command `rspdns-lab bench`."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from rspdns_lab.bench import fast_path, flood, registrars, scale
from rspdns_lab.bench.report import as_markdown, figures, page_of
from rspdns_lab.bench.run import PARTS, Order, Result, check, read_result, run_bench
from rspdns_lab.bench.strangers import KINDS, QUICK_KINDS
from rspdns_lab.bench.variants import BY_KEY
from rspdns_lab.ending import say, tell_of_full_disk
from rspdns_lab.net.network import network_prefix
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.trials import LabReport, run_lab

_MOST_ELEMENTS = 10_000
_QUICK_TRIALS = 10


@click.command()
@click.option(
    "--only", "parts", multiple=True, type=click.Choice(PARTS), help="Measure only this; may be repeated."
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    type=click.Choice(list(BY_KEY)),
    metavar="KEY",
    help=f"Ask only this; may be repeated: {', '.join(BY_KEY)}.",
)
@click.option("--rounds", type=click.IntRange(1, 100), default=5, show_default=True)
@click.option(
    "--seconds",
    type=click.IntRange(1, 600),
    default=5,
    show_default=True,
    help="How long each variant is asked in a round; each size is watched three times as long.",
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
    """Measure speed and size.

    questions: answers a second and processor time for each, beside other name servers. changes: from a change
    to the last wrong answer. flood: live names while unknown names are asked for. scale: memory, processor
    time and convergence with up to 1,000 pools and 10,000 pool elements. registrars: how many pool elements
    three registrars can serve. strangers: look-ups while strangers fill another pool. gate: what
    the gate in front of a registrar costs.

    Exit status: 0 measured (the tables say what is aimed at), 2 it can't run here.
    """
    if quick:
        rounds, seconds, trials = 1, 1, min(trials, _QUICK_TRIALS)
    order = Order(
        parts=parts or PARTS,
        variants=_variants(variants) if not parts or "questions" in parts else (),
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

    def measure(earlier: Sequence[Result]) -> Iterator[Sequence[Result]]:
        check(order)
        with tempfile.TemporaryDirectory(prefix=f"rspdns-lab-{os.getpid()}-") as folder:
            try:
                yield from run_bench(order, earlier, Path(folder), network_prefix(), say)
            finally:
                tell_of_full_disk(Path(folder))

    run_lab(report, REPORT, options, measure)


def _variants(chosen: Sequence[str]) -> list[str]:
    """The variants that were chosen; all, when none was, but those that this machine can't run."""
    if chosen:
        return [key for key in BY_KEY if key in chosen]
    why = fast_path.why_not()
    if why:
        say(f"without answers from the kernel: {why}")
    return [key for key, variant in BY_KEY.items() if not (why and variant.fast)]


REPORT: Final = LabReport[Result](read_result, figures, as_markdown, page_of, write=lambda one: one.as_json())
