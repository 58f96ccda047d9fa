"""Runs scenarios with broken rules: it reads a `MutantJob` in each line of its input, in JSON.

    python -m rspdns_lab.simulate.mutant_server

It writes a line for each scenario, and one with the status of each job. The product is imported once: that
takes as long as a scenario. A child puts the changed code of one function in place, and runs scenarios until
a promise breaks. A change outside of functions needs a process that imports the product anew. A child that is
lost in a loop ends by its limit of processor time.
"""

from rspdns_lab.simulate import broken_import, determinism

determinism.install()
broken_import.install()

import json  # noqa: E402 - see above
import os  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from dataclasses import asdict, dataclass  # noqa: E402
from itertools import chain  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Final  # noqa: E402

from rspdns_lab.simulate import scenario  # noqa: E402
from rspdns_lab.simulate.faults import THEMES, Theme  # noqa: E402
from rspdns_lab.simulate.invariants import ANY_PROMISE  # noqa: E402
from rspdns_lab.simulate.mutations import GROUPS, mutated  # noqa: E402
from rspdns_lab.simulate.reached import ReachedLines  # noqa: E402
from rspdns_lab.simulate.world import WorldSetting, WorldSize  # noqa: E402

_SETTINGS: Final = (WorldSetting(), WorldSetting(keyed=True))
"""The settings of the first turns of all themes; after these the seed chooses."""
_SLACK_S: Final = 30
"""So much more processor time a child has for the scenario that is under way."""


@dataclass(frozen=True, slots=True)
class MutantJob:
    """Scenarios to run with a mutant, by its name; no name for the product as it is.

    `function` has its change; empty: it is outside of all, or none. `faults` are those of all scenarios;
    empty: those of the next theme each time. No scenario begins after `seconds` of the processor. `felt_by`
    are the digests of the same scenarios without a mutant: when all these are over and none differs, the job
    ends. `lines` is where the reached lines go.
    """

    name: str
    function: str
    faults: str
    size: str
    minutes: float
    scenarios: int
    seconds: float
    felt_by: Sequence[str] = ()
    lines: str = ""


@dataclass(frozen=True, slots=True)
class MutantScenario:
    """One scenario of a job, and its broken promise, if any."""

    seed: int
    promise: str
    words: str
    digest: str
    cpu_s: float


def scenarios(job: MutantJob) -> Iterator[MutantScenario]:
    """Run them, until a promise is broken."""
    began_s = determinism.real_s()
    size, is_felt = WorldSize(*map(int, job.size.split(","))), False
    for seed in range(1, job.scenarios + 1):
        if determinism.real_s() - began_s > job.seconds:
            return
        turn = (seed - 1) // len(THEMES)
        theme = Theme(job.faults.split(",")) if job.faults else THEMES[(seed - 1) % len(THEMES)]
        outcome = scenario.run(
            seed,
            job.minutes,
            names=theme.names,
            alone=theme.alone,
            size=size,
            setting=_SETTINGS[turn] if turn < len(_SETTINGS) else None,
            until_broken=ANY_PROMISE,
        )
        broken = outcome.broken[0] if outcome.broken else None
        yield MutantScenario(
            seed,
            "" if broken is None else broken.promise,
            "" if broken is None else broken.words,
            outcome.digest,
            outcome.cpu_s,
        )
        if broken is not None:
            return
        if seed <= len(job.felt_by):
            is_felt |= job.felt_by[seed - 1] != outcome.digest
            if seed == len(job.felt_by) and not is_felt:
                return


def _child(job: MutantJob) -> None:
    most_s = int(min(job.seconds, 10_000) + _SLACK_S)
    resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))
    if job.function:
        name, _, number = job.name.partition("#")
        module = sys.modules[name]
        assert module.__file__ is not None  # noqa: S101 - modules of the product have files
        broken_import.break_function(
            module, mutated(Path(module.__file__).read_text(), int(number)), job.function
        )
    elif job.name:
        os.environ[broken_import.VARIABLE] = job.name
        words = [sys.executable, "-m", "rspdns_lab.simulate.mutant_server", json.dumps(asdict(job))]
        os.execv(sys.executable, words)  # noqa: S606 - this very interpreter
    _run(job)


def _run(job: MutantJob) -> None:
    reached = ReachedLines(chain.from_iterable(GROUPS.values())) if job.lines else None
    if reached is not None:
        reached.begin()
    for each in scenarios(job):
        print(json.dumps(asdict(each)), flush=True)
    if reached is not None:
        reached.end(Path(job.lines))


def main() -> None:
    """Take jobs from the input; a job on the command line is that of a process made for it."""
    if len(sys.argv) > 1:
        _run(MutantJob(**json.loads(sys.argv[1])))
        return
    for line in sys.stdin:
        job = MutantJob(**json.loads(line))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _child(job)
                status = 0
            except BaseException as problem:
                print(json.dumps({"problem": repr(problem)}), flush=True)
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
