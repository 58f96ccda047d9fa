"""The trials of a lab: those that are left are run, each is kept in the report at once, all are shown."""

import contextlib
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from shlex import join
from typing import Any, Generic, NoReturn, TypeVar

import click

from rspdns_lab.ending import ending_plainly, say
from rspdns_lab.net.preconditions import become_root
from rspdns_lab.report.files import ReportFiles
from rspdns_lab.report.page import Page, measured_now, tables_of, write_markdown, write_page

EXIT_BROKEN = 1
REPORTS = ("--json", "--results", "--html", "--markdown")
T = TypeVar("T")
S = TypeVar("S")


def nothing_broken(_found: object) -> Sequence[str]:
    """Return no problems: for a lab that measures and promises nothing."""
    return ()


def trial_as_json(trial: Any) -> dict[str, Any]:
    """Return the fields of a dataclass."""
    return asdict(trial)


@dataclass(frozen=True)
class LabReport(Generic[T]):
    """The parts of a lab's report on its trials. A trial T is whatever it measures as a whole and does not
    measure twice.

    `read`: makes a trial from what `write` gave to JSON; raises TypeError or LookupError for something else.
    `figures`: what programs want to know beside the trials. `page`: tables and plots of at least one trial.
    `problems`: broken promises, in words; with any the lab's exit status is 1. `figures` and `problems` are
    also asked when there is no trial yet. `house`: the folder of the product beside this one whose
    `make bench` it is.
    """

    read: Callable[[dict[str, Any]], T]
    figures: Callable[[Sequence[T]], Mapping[str, Any]]
    page: Callable[[Sequence[T]], Page]
    problems: Callable[[Sequence[T]], Sequence[str]] = nothing_broken
    write: Callable[[T], Mapping[str, Any]] = trial_as_json
    house: str = ""


def run_lab(
    files: ReportFiles,
    report: LabReport[T],
    options: Mapping[str, Any],
    measure: Callable[[Sequence[T]], Iterable[Sequence[T]]],
) -> NoReturn:
    """Run a lab's command: what an earlier run found, the rest that `measure` finds, the report; then exit.

    `measure` is given the trials of the earlier run, and yields those that it lacks as they come; it may
    raise LabError. `options`: what a trial's figures depend on; a run with others is not gone on with.
    With all trials in the results file, the pages are made from them, and nothing is run.
    """
    found: list[T] = []
    measured: list[str] = []

    def tables() -> str:
        return tables_of(report.page(found)) if found else ""

    def keep() -> None:
        trials = [report.write(trial) for trial in found]
        files.keep({**report.figures(found), "measured": measured, "trials": trials}, options)

    with ending_plainly(tables):
        become_root()
        found += files.earlier(report.read, options)
        before = files.measured()
        measured += before
        with contextlib.closing(_each(measure(tuple(found)))) as trials:  # the lab ends before a word is said
            for more in trials:
                found += more
                measured[:] = [*before, measured_now()]
                keep()
        measured = measured or [measured_now()]
        keep()
        if files.html_file is not None and found:
            write_page(files.html_file, report.page(found))
        if files.markdown_file is not None and found:
            command = _command(report.house, files)
            write_markdown(files.markdown_file, report.page(found), command, measured)
    click.echo(tables())
    broken = report.problems(found)
    for problem in broken:
        say(f"broken: {problem}")
    sys.exit(EXIT_BROKEN if broken else 0)


def _command(house: str, files: ReportFiles) -> list[str]:
    """The command of this process, without the files that it writes."""
    written = {str(file) for file in (files.json_file, files.html_file, files.results, files.markdown_file)}
    words = [word for word in sys.argv[1:] if word not in written and word.partition("=")[0] not in REPORTS]
    if not house:
        return ["rspdns-lab", *words]
    return ["make", "-C", house, "bench", *([f"BENCH_OPTIONS={join(words)}"] if words else [])]


def _each(several: Iterable[T]) -> Generator[T, None, None]:
    yield from several


def trials_option(default: int, words: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option `--trials`; `words`: what is tried so often."""
    often = click.IntRange(1, 10_000)
    return click.option("--trials", type=often, default=default, show_default=True, help=words)


def trials_left(
    faults: Sequence[S], trials: int, done: Collection[tuple[str, int]], name: Callable[[S], str] = str
) -> list[tuple[S, int]]:
    """Return what is still to be done, the first trial of each fault before the second of any."""
    return [
        (fault, trial)
        for trial in range(1, trials + 1)
        for fault in faults
        if (name(fault), trial) not in done
    ]


def each_undone(
    plan: Sequence[tuple[S, int]],
    do: Callable[[S, int], Sequence[T]],
    undo: Callable[[S], object],
) -> Iterable[Sequence[T]]:
    """Do the trials of `plan`; each fault is taken back before the next, not the last one."""
    for number, (fault, trial) in enumerate(plan):
        if number:
            undo(plan[number - 1][0])
        yield do(fault, trial)
