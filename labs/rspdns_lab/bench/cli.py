"""The command `rspdns-lab bench`: its questions, one after the other."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
from daemon_kit.commands import example

from rspdns_lab.bench import changes, fast_path, flood, gate, questions, registrars, scale, strangers
from rspdns_lab.bench.part import Part, Run
from rspdns_lab.bench.variants import BY_KEY
from rspdns_lab.ending import say, warn_of_full_disk
from rspdns_lab.net.network import network_prefix
from rspdns_lab.net.preconditions import check_programs
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page
from rspdns_lab.report.trials import LabReport, run_lab

_MODULES: Final = (questions, changes, flood, scale, registrars, strangers, gate)
PARTS: Final[Mapping[str, Part[Any]]] = {module.PART.name: module.PART for module in _MODULES}
_QUICK_TRIALS = 10


@click.command(epilog=example("rspdns-lab bench --only questions --quick"))
@click.option(
    "--only",
    "chosen",
    multiple=True,
    type=click.Choice(list(PARTS)),
    help="Measure only this; may be repeated.",
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
    "--quick",
    is_flag=True,
    help=f"One round of 1 s, {_QUICK_TRIALS} changes, one size; the figures say less.",
)
@report_options
def bench(
    chosen: Sequence[str],
    variants: Sequence[str],
    rounds: int,
    seconds: int,
    trials: int,
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
    parts = [part for name, part in PARTS.items() if not chosen or name in chosen]
    keys = _variants(variants) if questions.PART in parts else ()
    options = {"quick": quick, "seconds": seconds, "trials": trials}

    def measure(earlier: Sequence[object]) -> Iterator[Sequence[object]]:
        with tempfile.TemporaryDirectory(prefix=f"rspdns-lab-{os.getpid()}-") as name:
            folder = Path(name)
            run = Run(keys, rounds, seconds, trials, quick, folder, network_prefix(), say)
            check_programs(
                {program: package for part in parts for program, package in part.programs(run).items()}
            )
            try:
                for part in parts:
                    yield from part.measure(run, part.own(earlier))
            finally:
                warn_of_full_disk(folder)

    run_lab(report, REPORT, options, measure)


def _variants(chosen: Sequence[str]) -> list[str]:
    """The variants that were chosen; all, when none was, but those that this machine can't run."""
    if chosen:
        return [key for key in BY_KEY if key in chosen]
    why = fast_path.why_not()
    if why:
        say(f"without answers from the kernel: {why}")
    return [key for key, variant in BY_KEY.items() if not (why and variant.fast)]


def _measured(found: Sequence[object]) -> list[tuple[Part[Any], list[Any]]]:
    """The questions that were measured, with their results."""
    return [(part, own) for part in PARTS.values() if (own := part.own(found))]


def _figures(found: Sequence[object]) -> dict[str, float]:
    return {key: value for part, own in _measured(found) for key, value in part.figures(own).items()}


def _page(found: Sequence[object]) -> Page:
    measured = _measured(found)
    first = measured[0][0]
    return Page(
        first.title, first.intro, [section for part, own in measured for section in part.sections(own)]
    )


def _read(fields: Mapping[str, Any]) -> object:
    rest = dict(fields)
    return PARTS[rest.pop("part")].read(rest)


def _write(result: Any) -> dict[str, Any]:
    name = next(name for name, part in PARTS.items() if isinstance(result, part.kinds))
    return {"part": name, **asdict(result)}


REPORT: Final = LabReport(_read, _figures, _page, write=_write)
