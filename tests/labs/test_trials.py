"""Every lab keeps its trials in its report as they come, goes on from there, and says what was broken."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from rspdns_lab.chaos.summary import Case, CaseTrial, read_trial
from rspdns_lab.chaos.verdict import ChaosTrial
from rspdns_lab.cli import main
from rspdns_lab.ending import say
from rspdns_lab.report import trials
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Section, table_of
from rspdns_lab.report.trials import LabReport, each_undone, run_lab, trials_left

LABS = ["ims", "bench", "compare", "chaos", "loss", "resolvers"]


@pytest.fixture(autouse=True)
def is_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "become_root", lambda: None)


@dataclass(frozen=True)
class Throw:
    """One throw of a die."""

    number: int
    eyes: int


REPORT = LabReport(
    read=lambda fields: Throw(**fields),
    figures=lambda found: {"sum": sum(throw.eyes for throw in found)},
    page=lambda found: Page("Throws", "", [Section("Dice", "", table_of([("eyes", "{eyes}")], found))]),
    problems=lambda found: [f"{throw} has no eyes" for throw in found if not throw.eyes],
)


def dice(*arguments: str, eyes: Callable[[int], int] = lambda number: number, ends_at: int = 99) -> Result:
    """Run a lab that throws a die three times; it is interrupted at its throw `ends_at`."""

    def measure(earlier: Sequence[Throw]) -> Iterator[Sequence[Throw]]:
        try:
            for number in range(len(earlier) + 1, 4):
                if number == ends_at:
                    raise KeyboardInterrupt
                yield [Throw(number, eyes(number))]
        finally:
            say("the lab has ended")

    @click.command()
    @report_options
    def lab(report: ReportFiles) -> None:
        run_lab(report, REPORT, {"sides": 6}, measure)

    return CliRunner().invoke(lab, arguments)


def shown(done: Result) -> str:
    """The eyes in the table of a run."""
    return " ".join(re.findall(r"^\| (\d+) \|$", done.stdout, re.MULTILINE))


def test_an_interrupted_run_shows_what_it_has_and_is_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "throws.json"
    arguments = ("--results", str(file))
    done = dice(*arguments, ends_at=3)
    assert (done.exit_code, shown(done)) == (130, "1 2")
    assert done.stderr.splitlines() == [
        "the lab has ended",
        "measured until then:",
        "interrupted; everything is cleaned up",
    ]
    report = json.loads(file.read_text())
    (measured,) = report.pop("measured")
    assert measured.startswith("Measured on ")
    assert report == {"options": {"sides": 6}, "sum": 3, "trials": [asdict(Throw(1, 1)), asdict(Throw(2, 2))]}
    done = dice(*arguments, eyes=lambda number: 10 * number)
    assert (done.exit_code, shown(done)) == (0, "1 2 30"), "what is done is not done again"
    assert json.loads(file.read_text())["sum"] == 33


def test_page_made_of_a_finished_run_says_when_its_trials_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, page = tmp_path / "throws.json", tmp_path / "page.md"
    for day, ends_at in (("Monday", 2), ("Tuesday", 99), ("Wednesday", 99)):
        monkeypatch.setattr(trials, "measured_now", lambda day=day: f"Measured on {day}.")
        dice("--results", str(file), "--markdown", str(page), ends_at=ends_at)
    assert "\n\nMeasured on Monday.\nMeasured on Tuesday.\n\n" in page.read_text()


def test_results_and_figures_may_go_to_two_files(tmp_path: Path) -> None:
    results, figures = tmp_path / "results", tmp_path / "figures"
    for _ in range(2):
        assert dice("--results", str(results), "--json", str(figures)).exit_code == 0
        assert json.loads(results.read_text()) == json.loads(figures.read_text())
    assert shown(dice("--json", str(figures), eyes=lambda _: 6)) == "6 6 6", "all anew"
    assert shown(dice("--results", str(results), eyes=lambda _: 6)) == "1 2 3"


def test_a_run_stopped_between_two_trials_ends_its_lab_before_it_says_why(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    done = dice("--json", str(tmp_path / "full"))
    assert done.exit_code == 2
    ended, _, why = done.stderr.splitlines()
    assert ended == "the lab has ended"
    assert "No space left on device; what it held before is kept" in why


def test_a_broken_promise_is_said_and_is_the_exit_status() -> None:
    done = dice(eyes=lambda number: number - 1)
    assert done.exit_code == 1
    assert shown(done) == "0 1 2"
    assert done.stderr.endswith("broken: Throw(number=1, eyes=0) has no eyes\n")


@pytest.mark.parametrize(
    ("house", "options", "command"),
    [
        ("", ["dice", "--eyes", "6"], "rspdns-lab dice --eyes 6"),
        ("ppu-agent/guard", [], "make -C ppu-agent/guard bench"),
        ("ppu-agent/guard", ["--eyes", "6"], "make -C ppu-agent/guard bench 'BENCH_OPTIONS=--eyes 6'"),
    ],
)
def test_a_page_names_the_command_that_makes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: str, options: list[str], command: str
) -> None:
    file = tmp_path / "page.md"
    monkeypatch.setattr(sys, "argv", ["program", *options, "--markdown", str(file)])
    with pytest.raises(SystemExit):
        run_lab(ReportFiles(markdown_file=file), replace(REPORT, house=house), {}, lambda _: [[Throw(1, 6)]])
    assert f"\n    {command}\n" in file.read_text()


def test_faults_come_by_turns_and_are_taken_back_between_trials() -> None:
    plan = trials_left(["kill", "cut"], 2, {("kill", 1)})
    assert plan == [("cut", 1), ("kill", 2), ("cut", 2)]
    done: list[str] = []
    found = each_undone(plan, lambda fault, trial: [f"{fault} {trial}"], lambda fault: done.append(fault))
    assert list(found) == [["cut 1"], ["kill 2"], ["cut 2"]]
    assert done == ["cut", "kill"], "the lab ends with the last one"


@pytest.mark.parametrize("text", ["dear diary\nanother line\n", "{}\n", '{"trials": [{}]}\n', "\xff\n"])
@pytest.mark.parametrize("lab", LABS)
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, lab: str, text: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(text, "latin-1")
    done = CliRunner().invoke(main, [lab, "--results", str(file)])
    assert done.exit_code == 2, done.output
    assert done.stderr == f"error: {file} is no report of this lab; remove it, or name another file\n"
    assert file.read_text("latin-1") == text


@pytest.mark.parametrize("lab", LABS)
def test_results_in_a_missing_folder_are_refused_at_once(tmp_path: Path, lab: str) -> None:
    done = CliRunner().invoke(main, [lab, "--results", str(tmp_path / "none" / "x.json")])
    assert done.exit_code == 2, done.output
    assert "Invalid value for '--results': there is no folder " in done.output


def test_a_trial_of_the_chaos_lab_is_read_back_and_one_of_another_version_is_not() -> None:
    trial = CaseTrial(Case("as-killed", 3, "poll"), ChaosTrial(last_wrong_ms=30, answers=10))
    fields = json.loads(json.dumps(trial.as_json()))
    assert read_trial(fields) == trial
    for other in (
        {**fields, "follow": "both"},
        {**fields, "trial": {**fields["trial"], "void": 1}},
        {key: value for key, value in fields.items() if key != "members"},
    ):
        with pytest.raises((TypeError, LookupError)):
            read_trial(other)
