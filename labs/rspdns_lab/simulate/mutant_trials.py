"""The command `rspdns-lab mutants`: proof that the simulator bites.

Scenario after scenario runs with each mutant, until a promise breaks or its time is over. The trials stand in
a file, a line each: a run that was interrupted goes on where it ended.
"""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
from daemon_kit.commands import example

from rspdns_lab.report.files import ReportPath
from rspdns_lab.simulate.cli import machine_and_load, worker_environment
from rspdns_lab.simulate.mutant_page import markdown
from rspdns_lab.simulate.mutants import MUTANTS
from rspdns_lab.simulate.mutations import GROUPS, LEFT_OUT, Mutation, is_tried, mutations, spread
from rspdns_lab.simulate.survivors import REASONS

MOST_SCENARIOS: Final = 10_000
SIZE: Final = "3,3,1"
MINUTES: Final = 1.5
BASELINE: Final = 16
"""Scenarios of the product as it is: their lines count as reached, and their traces are compared."""


@dataclass(frozen=True, slots=True)
class TrialMutant:
    """A mutant to be tried. `faults` and `size` are those of its scenarios; `line` is 0 where every scenario
    reaches it, `function` empty where it is outside of all, or chosen by hand."""

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
    as it is. `cpu_s` is processor time."""

    name: str
    group: str
    module: str
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
    """Return this number of those that can be made, spread over the modules, the same each time; 0: all."""
    groups = {module: group for group, modules in GROUPS.items() for module in modules}
    chosen = spread([list(filter(is_tried, mutations_of(module))) for module in groups], count)
    return [
        TrialMutant(
            each.name,
            groups[each.module],
            each.module,
            each.function,
            each.words,
            each.line if each.function else 0,
        )
        for each in chosen
    ]


def mutations_of(module: str) -> list[Mutation]:
    """All mutants of a module of the product."""
    spec = find_spec(module)
    assert spec is not None  # noqa: S101 - a test holds the list
    assert spec.origin is not None  # noqa: S101
    return mutations(module, Path(spec.origin).read_text())


@click.command(epilog=example("rspdns-lab mutants --count 20 --json mutants.json"))
@click.option("--count", type=click.IntRange(0), default=300, show_default=True, help="Made ones; 0: all.")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Processor time for each.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes at a time.")
@click.option("--json", "json_file", type=ReportPath(), required=True, help="The trials; those in it stand.")
@click.option("--markdown", "markdown_file", type=ReportPath(), help="Write a page of results here.")
@click.option("--only", default="", help="Mutants with this in their name only.")
@click.option("--again", is_flag=True, help="Try those that survived before once more.")
def mutants(
    count: int,
    seconds: float,
    jobs: int,
    json_file: Path,
    markdown_file: Path | None,
    only: str,
    again: bool,
) -> None:
    """Break rules of the product, one at a time, and see whether scenarios notice it.

    Goes on with the file of a run that was interrupted. Exit status: 0 all were found, 1 some survive.
    """
    wanted = [each for each in (*made(count), *by_hand()) if only in each.name]
    before = {trial.name: trial for trial in _kept(json_file)}
    trials = {
        each.name: before[each.name]
        for each in wanted
        if _is_same(before.get(each.name), each) and not (again and not before[each.name].promise)
    }
    rest = [each for each in wanted if each.name not in trials]
    if rest:
        baseline = _Baseline()
        with ThreadPoolExecutor(jobs) as pool:
            for done_trial in as_completed([pool.submit(baseline.trial, each, seconds) for each in rest]):
                trial = done_trial.result()
                trials[trial.name] = trial
                with json_file.open("a") as file:
                    file.write(f"{json.dumps(asdict(trial))}\n")
                words = trial.promise or ("SURVIVES" if trial.is_reached else "not reached")
                click.echo(f"{len(trials)}/{len(wanted)} {trial.name}: {words} ({trial.words})", err=True)
    done = [trials[each.name] for each in wanted if each.name in trials]
    if markdown_file is not None:
        markdown_file.write_text(markdown(done, seconds, machine_and_load(), LEFT_OUT, REASONS))
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
        self._servers = threading.local()
        with tempfile.TemporaryDirectory(prefix="rspdns-mutants-") as folder:
            lines = Path(folder) / "lines"
            done = self._server.work(_job(SIZE, 1e6, BASELINE, lines=str(lines)))
            broken = [each for each in done.scenarios if each["promise"]]
            if done.problem or broken:
                raise click.ClickException(f"without any mutant: {done.problem or broken[0]}")
            self._reached: Mapping[str, Sequence[int]] = json.loads(lines.read_text())
        self._digests = [each["digest"] for each in done.scenarios]

    @property
    def _server(self) -> "_MutantServer":
        """That of this thread."""
        if not hasattr(self._servers, "server"):
            self._servers.server = _MutantServer()
        server: _MutantServer = self._servers.server
        return server

    def trial(self, mutant: TrialMutant, seconds: float) -> MutantTrial:
        """Try a mutant."""
        if mutant.line and mutant.line not in self._reached.get(mutant.module, ()):
            return self._ended(mutant, "", [], is_reached=False)
        felt_by = () if mutant.faults else self._digests
        job = _job(mutant.size, seconds, MOST_SCENARIOS, felt_by=felt_by)
        job |= {"name": mutant.name, "function": mutant.function, "faults": mutant.faults}
        done = self._server.work(job)
        promise = done.problem or (done.scenarios[-1]["promise"] if done.scenarios else "")
        return self._ended(mutant, promise, done.scenarios)

    def _ended(
        self,
        mutant: TrialMutant,
        promise: str,
        scenarios: Sequence[Mapping[str, Any]],
        *,
        is_reached: bool = True,
    ) -> MutantTrial:
        pairs = zip(scenarios, self._digests, strict=False)
        return MutantTrial(
            mutant.name,
            mutant.group,
            mutant.module,
            mutant.function,
            mutant.words,
            promise,
            scenarios[-1]["seed"] if scenarios else 0,
            len(scenarios),
            round(sum(each["cpu_s"] for each in scenarios), 1),
            is_reached,
            bool(mutant.faults) or any(each["digest"] != digest for each, digest in pairs),
        )


@dataclass(frozen=True, slots=True)
class _Done:
    scenarios: list[dict[str, Any]]
    problem: str = ""


def _job(size: str, seconds: float, scenarios: int, **more: Any) -> dict[str, Any]:
    job = {"name": "", "function": "", "faults": "", "size": size, "minutes": MINUTES}
    return job | {"scenarios": scenarios, "seconds": seconds} | more


class _MutantServer:
    """A process that runs scenarios with mutants (`mutant_server`)."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "rspdns_lab.simulate.mutant_server"]
        self._process = subprocess.Popen(
            command,
            env=worker_environment(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def work(self, job: Mapping[str, Any]) -> _Done:
        """Do a job. Raises click.ClickException when the process ends."""
        assert self._process.stdin is not None  # noqa: S101 - it has pipes
        assert self._process.stdout is not None  # noqa: S101
        self._process.stdin.write(f"{json.dumps(job)}\n")
        self._process.stdin.flush()
        done = _Done([])
        for line in self._process.stdout:
            told = json.loads(line)
            if "problem" in told:
                done = _Done(done.scenarios, f"does not run: {told['problem']}")
            elif "status" not in told:
                done.scenarios.append(told)
            elif told["status"] == 0 or done.problem:
                return done
            else:
                return _Done(done.scenarios, f"does not {'end' if told['status'] < 0 else 'run'}")
        raise click.ClickException("the process that runs the scenarios has ended")
