"""The command `rspdns-lab mutants`: proof that the simulator bites.

Each mutant runs in workers of its own, scenario after scenario, until a promise breaks or its time is over.
The trials stand in a file, a line each: a run that was interrupted goes on where it ended.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
from daemon_kit.commands import example

from rspdns_lab.report.files import ReportPath
from rspdns_lab.simulate.broken_import import VARIABLE
from rspdns_lab.simulate.cli import machine_and_load, worker_environment
from rspdns_lab.simulate.mutant_page import markdown
from rspdns_lab.simulate.mutants import MUTANTS
from rspdns_lab.simulate.mutations import GROUPS, mutations

MOST_SCENARIOS: Final = 10_000
SIZE: Final = "3,4,2"
MINUTES: Final = 2.0
_BASELINE: Final = 6
"""Scenarios of the product as it is: their lines count as reached, and their traces are compared."""
_SLACK: Final = 6
"""A worker may take so many times its time of the processor, on a machine with other work."""


@dataclass(frozen=True, slots=True)
class TrialMutant:
    """A mutant to be tried. `faults` and `size` are those of its scenarios; `line` is 0 where every scenario
    reaches it."""

    name: str
    group: str
    module: str
    function: str
    words: str
    line: int = 0
    faults: str = ""
    size: str = SIZE


@dataclass(frozen=True, slots=True)
class MutantTrial:
    """The end of a trial. `promise` is the broken one ("does not run", "does not end" included), empty for a
    survivor. `is_reached`: scenarios come to its line; `is_felt`: some trace differs from that of the product
    as it is."""

    name: str
    group: str
    function: str
    words: str
    promise: str
    seed: int
    scenarios: int
    cpu_s: float
    is_reached: bool = True
    is_felt: bool = True


def by_hand() -> list[TrialMutant]:
    """The mutants that were chosen by hand."""
    return [
        TrialMutant(each.name, "by hand", each.module, "", each.name, faults=each.faults, size=each.size)
        for each in MUTANTS
    ]


def made(count: int) -> list[TrialMutant]:
    """Return this number of mutants of those that can be made, the same each time; 0: all."""
    everything = []
    for group, modules in GROUPS.items():
        for module in modules:
            spec = find_spec(module)
            assert spec is not None  # noqa: S101 - a test holds the list
            assert spec.origin is not None  # noqa: S101
            for each in mutations(module, Path(spec.origin).read_text()):
                line = each.line if each.function else 0
                where = f"{module}.{each.function}" if each.function else module
                everything.append(TrialMutant(each.name, group, module, where, each.words, line))
    random.Random("mutants").shuffle(everything)  # noqa: S311 - a choice, no secret
    return everything[: count or None]


@click.command(epilog=example("rspdns-lab mutants --count 20 --json mutants.json"))
@click.option("--count", type=click.IntRange(0), default=300, show_default=True, help="Made ones; 0: all.")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Processor time for each.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes at a time.")
@click.option("--json", "json_file", type=ReportPath(), required=True, help="The trials; those in it stand.")
@click.option("--markdown", "markdown_file", type=ReportPath(), help="Write a page of results here.")
@click.option("--only", default="", help="Mutants with this in their name only.")
def mutants(
    count: int, seconds: float, jobs: int, json_file: Path, markdown_file: Path | None, only: str
) -> None:
    """Break rules of the product, one at a time, and see whether scenarios notice it.

    Goes on with the file of a run that was interrupted. Exit status: 0 all were found, 1 some survive.
    """
    wanted = [each for each in (*by_hand(), *made(count)) if only in each.name]
    trials = {trial.name: trial for trial in _kept(json_file)}
    trials = {each.name: trials[each.name] for each in wanted if _is_same(trials.get(each.name), each)}
    rest = [each for each in wanted if each.name not in trials]
    if rest:
        baseline = _Baseline()
        with ThreadPoolExecutor(jobs) as pool:
            for trial in pool.map(lambda mutant: baseline.trial(mutant, seconds), rest):
                trials[trial.name] = trial
                with json_file.open("a") as file:
                    file.write(f"{json.dumps(asdict(trial))}\n")
                words = trial.promise or ("SURVIVES" if trial.is_reached else "not reached")
                click.echo(f"{len(trials)}/{len(wanted)} {trial.name}: {words} ({trial.words})", err=True)
    done = [trials[each.name] for each in wanted if each.name in trials]
    if markdown_file is not None:
        markdown_file.write_text(markdown(done, seconds, machine_and_load()))
    survivors = [trial for trial in done if not trial.promise]
    click.echo(f"{len(done) - len(survivors)} of {len(done)} found", err=True)
    sys.exit(1 if survivors else 0)


def _kept(path: Path) -> Iterator[MutantTrial]:
    if path.is_file():
        for line in path.read_text().splitlines():
            yield MutantTrial(**json.loads(line))


def _is_same(trial: MutantTrial | None, mutant: TrialMutant) -> bool:
    """Whether a trial of before is one of this mutant, as the source is now."""
    return trial is not None and (trial.function, trial.words) == (mutant.function, mutant.words)


class _Baseline:
    """The product as it is: the lines that scenarios reach, and the digests of their traces."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="rspdns-mutants-") as folder:
            lines = Path(folder) / "lines"
            done = _work("", "", SIZE, _BASELINE, float("inf"), "--lines", str(lines))
            broken = [outcome for outcome in done.outcomes if outcome["broken"]]
            if done.problem or broken:
                raise click.ClickException(f"without any mutant: {done.problem or broken[0]}")
            self._reached: Mapping[str, Sequence[int]] = json.loads(lines.read_text())
        self._digests = {outcome["seed"]: outcome["digest"] for outcome in done.outcomes}

    def trial(self, mutant: TrialMutant, seconds: float) -> MutantTrial:
        """Try a mutant."""
        if mutant.line and mutant.line not in self._reached.get(mutant.module, ()):
            return self._ended(mutant, "", [], is_reached=False)
        done = _work(mutant.name, mutant.faults, mutant.size, MOST_SCENARIOS, seconds)
        if done.problem:
            return self._ended(mutant, done.problem, done.outcomes)
        broken = [outcome["broken"][0]["promise"] for outcome in done.outcomes if outcome["broken"]]
        return self._ended(mutant, broken[0] if broken else "", done.outcomes)

    def _ended(
        self,
        mutant: TrialMutant,
        promise: str,
        outcomes: Sequence[Mapping[str, Any]],
        *,
        is_reached: bool = True,
    ) -> MutantTrial:
        is_felt = bool(mutant.faults) or any(
            self._digests.get(outcome["seed"], outcome["digest"]) != outcome["digest"] for outcome in outcomes
        )
        return MutantTrial(
            mutant.name,
            mutant.group,
            mutant.function,
            mutant.words,
            promise,
            outcomes[-1]["seed"] if outcomes else 0,
            len(outcomes),
            round(sum(outcome["cpu_s"] for outcome in outcomes), 1),
            is_reached,
            is_felt,
        )


@dataclass(frozen=True, slots=True)
class _Done:
    outcomes: list[dict[str, Any]]
    problem: str = ""


def _work(name: str, faults: str, size: str, scenarios: int, seconds: float, *more: str) -> _Done:
    """Run scenarios from seed 1 on, until a promise is broken or the time is over."""
    options = ["--faults", faults, "--size", size, "--for-s", str(seconds), "--until-broken", *more]
    command = [sys.executable, "-m", "rspdns_lab.simulate", "1", str(scenarios), str(MINUTES), *options]
    environment = worker_environment() | ({VARIABLE: name} if name else {})
    most_s = _SLACK * seconds + 60 if seconds < float("inf") else None
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=most_s
        )
    except subprocess.TimeoutExpired:
        return _Done([], "does not end")
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        return _Done(outcomes, f"does not run: {words[-1]}")
    return _Done(outcomes)
