"""The command `rspdns-lab simulate`: scenarios in processes of their own, and what they found."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import click
from daemon_kit.commands import example

from rspdns_lab.errors import LabError
from rspdns_lab.report.files import STDOUT, ReportPath, write_whole
from rspdns_lab.report.page import machine, write_plots
from rspdns_lab.simulate.page import markdown, plots
from rspdns_lab.simulate.regressions import SIZE
from rspdns_lab.simulate.soak import (
    SoakResult,
    added,
    read_results,
    result_of,
    write_results,
)

EXIT_BROKEN = 1
_PER_WORKER = 10
"""Scenarios of one process: its start takes as long as a third of a scenario."""
_SOME = 100_000_000


@click.command(epilog=example("rspdns-lab simulate --seed 7 --trace -"))
@click.option(
    "--seed",
    type=click.IntRange(0),
    help="The first scenario. Default: the next that --results has not; without, a number by chance.",
)
@click.option(
    "--scenarios", type=click.IntRange(1), default=1, show_default=True, help="How many, from it on."
)
@click.option(
    "--minutes", type=click.FloatRange(0.6), default=2.0, show_default=True, help="The length of each."
)
@click.option("--faults", default="", help="These kinds of faults only: NAME,...  Default: the seed chooses.")
@click.option("--leave-out", default="", help="Faults of the plan that do not come, by their numbers: N,...")
@click.option("--shrink", is_flag=True, help="Leave out every fault without which it fails all the same.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes at a time.")
@click.option("--size", default=SIZE, show_default=True, help="Registrars, servers, name servers.")
@click.option(
    "--setting", default="", help="keyed, polled, sited, verified, or plain.  Default: the seed chooses."
)
@click.option("--trace", type=ReportPath(stdout=True), help='The timeline of the last one ("-": stdout).')
@click.option("--results", type=ReportPath(), help="Add to the results in this file, while it goes on.")
@click.option("--markdown", "markdown_file", type=ReportPath(), help="Write a page of results here.")
def simulate(
    seed: int | None,
    scenarios: int,
    minutes: float,
    faults: str,
    leave_out: str,
    shrink: bool,
    jobs: int,
    size: str,
    setting: str,
    trace: Path | None,
    results: Path | None,
    markdown_file: Path | None,
) -> None:
    """Run the whole chain on a virtual clock, with faults chosen by a seed, and look for broken promises.

    Needs no root. The same seed does the same each time. Exit status: 0 nothing was broken, 1 a promise was.
    """
    if results is not None and (faults or leave_out or setting):
        raise click.UsageError(
            "--results are of what each seed chooses: leave out --faults, --leave-out, --setting"
        )
    options = ["--faults", faults, "--leave-out", leave_out, "--size", size, "--setting", setting]
    options += ["--shrink"] if shrink else []
    totals: list[SoakResult] = []
    outcomes: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rspdns-simulate-") as folder:
        if trace is not None:
            options += ["--trace", str(Path(folder) / "trace")]
        try:
            totals = [] if results is None else read_results(results)
            first = _first(seed, totals, results)
            command = _command(first, scenarios, minutes, size, results)
            for found in _run(first, scenarios, minutes, options, jobs):
                outcomes += found
                for outcome in found:
                    totals = added(totals, result_of(outcome, size, date.today().isoformat()))
                    for broken in outcome["broken"]:
                        click.echo(_words(outcome, broken, faults, size), err=True)
                if results is not None:
                    write_results(results, totals)
                if markdown_file is not None:
                    pictures = write_plots(markdown_file, plots(totals))
                    text = markdown(totals, machine_and_load(), command, pictures)
                    write_whole(markdown_file, text)
        except LabError as error:
            raise click.ClickException(str(error)) from None
        if trace is not None:
            text = (Path(folder) / "trace").read_text()
            if trace == STDOUT:
                click.echo(text, nl=False)
            else:
                trace.write_text(text)
    click.echo(_summary(outcomes, first), err=True)
    sys.exit(EXIT_BROKEN if any(outcome["broken"] for outcome in outcomes) else 0)


def _first(seed: int | None, totals: Sequence[SoakResult], results: Path | None) -> int:
    """The seed that was asked for, or the next that no result has, or any."""
    if seed is not None:
        return seed
    if results is not None:
        return max((result.next_seed for result in totals), default=1)
    return int.from_bytes(os.urandom(4), "big") % _SOME


def _command(first: int, scenarios: int, minutes: float, size: str, results: Path | None) -> str:
    """The command of the page: the same again, or the next ones."""
    if results is None:
        begin = f"--seed {first} --scenarios {scenarios}"
    else:
        begin = f"--results {results} --scenarios {scenarios}"
    return f"rspdns-lab simulate {begin} --minutes {minutes:g} --size {size}"


def _run(
    first: int, count: int, minutes: float, options: Sequence[str], jobs: int
) -> Iterator[list[dict[str, Any]]]:
    """Run the scenarios; yield the outcomes of each process, in order. Raises LabError when a process ends
    before its scenarios do."""
    starts = range(first, first + count, _PER_WORKER)
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(
            lambda start: _work(start, min(start + _PER_WORKER, first + count) - 1, minutes, options), starts
        )


def _work(first: int, last: int, minutes: float, options: Sequence[str]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "rspdns_lab.simulate", str(first), str(last), str(minutes), *options]
    done = subprocess.run(command, env=worker_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def machine_and_load() -> str:
    """A sentence about when and where the figures came about."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    return f"Measured on {date.today().isoformat()}: {machine()}; load {load} at the end."


def worker_environment() -> dict[str, str]:
    """The environment of a worker: sets of texts have the same order each time."""
    return {**os.environ, "PYTHONHASHSEED": "0"}


def _words(outcome: dict[str, Any], broken: dict[str, Any], names: str, size: str) -> str:
    """The broken promise, the faults that are left, the command that shows it, and the line of
    `regressions`."""
    seed, minutes = outcome["seed"], f"{outcome['minutes']:g}"
    left_out = ",".join(map(str, outcome["left_out"]))
    more = {"faults": names, "left_out": left_out, "size": "" if size == SIZE else size}
    options = "".join(
        f" --{name.replace('left_out', 'leave-out')} {value}" for name, value in more.items() if value
    )
    keys = "".join(f', {name}="{value}"' for name, value in more.items() if value)
    faults = "".join(f"\n    fault {fault}" for fault in outcome["faults"]) if left_out else ""
    return (
        f"{broken['at_s']:.3f} s: {broken['promise']}: {broken['words']}{faults}\n"
        f"  rspdns-lab simulate --seed {seed} --minutes {minutes}{options} --trace -\n"
        f"  Regression(seed={seed}, minutes={minutes}{keys}),"
    )


def _summary(outcomes: Sequence[dict[str, Any]], first: int) -> str:
    hours = sum(outcome["minutes"] for outcome in outcomes) / 60
    cpu_s = sum(outcome["cpu_s"] for outcome in outcomes)
    broken = Counter(each["promise"] for outcome in outcomes for each in outcome["broken"])
    return (
        f"seeds {first} to {first + len(outcomes) - 1}: {hours:.2f} simulated hours, "
        f"{hours * 3600 / max(cpu_s, 1e-9):.1f} times as fast as real time, "
        f"{sum(len(outcome['faults']) for outcome in outcomes):,} faults, "
        f"{sum(outcome['answers'] for outcome in outcomes):,} answers; "
        + (
            ", ".join(f"{name} broken in {count}" for name, count in sorted(broken.items()))
            or "nothing broken"
        )
    )
