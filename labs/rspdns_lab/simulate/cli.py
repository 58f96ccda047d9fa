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

from rspdns_lab.errors import LabError
from rspdns_lab.report.files import STDOUT, ReportPath
from rspdns_lab.report.page import machine
from rspdns_lab.simulate.page import markdown

EXIT_BROKEN = 1
_PER_WORKER = 10
"""Scenarios of one process: its start takes as long as a third of a scenario."""
_SOME = 100_000_000


@click.command()
@click.option("--seed", type=click.IntRange(0), help="The first scenario. Default: a number by chance.")
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
@click.option("--size", default="3,10,2", show_default=True, help="Registrars, servers, name servers.")
@click.option("--trace", type=ReportPath(stdout=True), help='The timeline of the last one ("-": stdout).')
@click.option(
    "--json", "json_file", type=ReportPath(), help="Write every scenario's figures here, a line each."
)
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
    trace: Path | None,
    json_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Run the whole chain on a virtual clock, with faults chosen by a seed, and look for broken promises.

    Needs no root. The same seed does the same each time. Exit status: 0 nothing was broken, 1 a promise was.
    """
    first = int.from_bytes(os.urandom(4), "big") % _SOME if seed is None else seed
    options = [
        "--faults",
        faults,
        "--leave-out",
        leave_out,
        "--size",
        size,
        *(["--shrink"] if shrink else []),
    ]
    outcomes: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rspdns-simulate-") as folder:
        if trace is not None:
            options += ["--trace", str(Path(folder) / "trace")]
        try:
            for outcome in _run(first, scenarios, minutes, options, jobs):
                outcomes.append(outcome)
                for broken in outcome["broken"]:
                    click.echo(_words(outcome, broken, faults), err=True)
                if json_file is not None:
                    json_file.write_text("".join(f"{json.dumps(each)}\n" for each in outcomes))
        except LabError as error:
            raise click.ClickException(str(error)) from None
        if trace is not None:
            text = (Path(folder) / "trace").read_text()
            if trace == STDOUT:
                click.echo(text, nl=False)
            else:
                trace.write_text(text)
    click.echo(_summary(outcomes, first), err=True)
    if markdown_file is not None:
        markdown_file.write_text(markdown(outcomes, minutes, machine_and_load()))
    sys.exit(EXIT_BROKEN if any(outcome["broken"] for outcome in outcomes) else 0)


def _run(
    first: int, count: int, minutes: float, options: Sequence[str], jobs: int
) -> Iterator[dict[str, Any]]:
    """Run the scenarios; yield their outcomes in order. Raises LabError when one can't be run to its end."""
    starts = range(first, first + count, _PER_WORKER)
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(
            lambda start: _work(start, min(start + _PER_WORKER, first + count) - 1, minutes, options), starts
        ):
            yield from found


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


def _words(outcome: dict[str, Any], broken: dict[str, Any], names: str) -> str:
    again = f"rspdns-lab simulate --seed {outcome['seed']} --minutes {outcome['minutes']:g} --trace -"
    if names:
        again += f" --faults {names}"
    if outcome["left_out"]:
        again += f" --leave-out {','.join(map(str, outcome['left_out']))}"
    faults = "".join(f"\n    fault {fault}" for fault in outcome["faults"]) if outcome["left_out"] else ""
    return f"{broken['at_s']:.3f} s: {broken['promise']}: {broken['words']}{faults}\n  {again}"


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
