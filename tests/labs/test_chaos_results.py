"""The file in which the chaos lab keeps its trials."""

import json
from pathlib import Path

import pytest
from rspdns_lab.chaos.summary import Case, Kept
from rspdns_lab.chaos.verdict import Trial
from rspdns_lab.errors import LabError

CASE = Case("as-killed", 3, "poll")


def test_trials_outlive_the_run_that_made_them(tmp_path: Path) -> None:
    file = tmp_path / "trials.jsonl"
    kept = Kept(file)
    kept.add(CASE, Trial(last_wrong_ms=30, answers=10))
    kept.add(CASE, Trial(last_wrong_ms=40, answers=10))
    with file.open("a") as opened:
        opened.write('{"fault": "as-ki')  # killed while it wrote
    again = Kept(file)
    assert again.trials == kept.trials
    again.add(CASE, Trial(last_wrong_ms=50, answers=10))
    assert [trial.last_wrong_ms for trial in Kept(file).trials[CASE]] == [30, 40, 50]


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("dear diary\nanother line\n")
    with pytest.raises(LabError, match=r"notes.txt:1: no trial of this lab"):
        Kept(file)
    assert file.read_text().startswith("dear diary")


@pytest.mark.parametrize("text", ["dear diary", "dear diary\n", '{"trials": []}\n', "\xff\n"])
def test_a_file_of_one_line_is_no_half_trial(tmp_path: Path, text: str) -> None:
    """Reports of other labs are one line of JSON."""
    file = tmp_path / "notes.txt"
    file.write_text(text, "latin-1")
    with pytest.raises(LabError, match=r"notes.txt:1: no trial of this lab"):
        Kept(file)
    assert file.read_text("latin-1") == text


def test_a_trial_of_another_version_is_refused_also_as_the_last(tmp_path: Path) -> None:
    file = tmp_path / "trials.jsonl"
    Kept(file).add(CASE, Trial(last_wrong_ms=30))
    for was, now in (("empty", "void"), ("poll", "both")):
        text = file.read_text().replace(f'"{was}"', f'"{now}"')
        other = tmp_path / "other.jsonl"
        other.write_text(text)
        with pytest.raises(LabError, match=r"other.jsonl:1: no trial"):
            Kept(other)
        assert other.read_text() == text


@pytest.mark.parametrize("length", range(1, 150, 12))
def test_a_line_cut_anywhere_costs_its_trial_alone(tmp_path: Path, length: int) -> None:
    file = tmp_path / "trials.jsonl"
    Kept(file).add(CASE, Trial(last_wrong_ms=30))
    line = file.read_text()
    cut = min(length, len(line) - 1)
    file.write_text(line + line[:cut])
    Kept(file).add(CASE, Trial(last_wrong_ms=50))
    assert [trial.last_wrong_ms for trial in Kept(file).trials[CASE]] == [30, 50]


def test_trials_are_kept_as_lines_of_json(tmp_path: Path) -> None:
    Kept(tmp_path / "t").add(CASE, Trial(last_wrong_ms=30))
    [line] = (tmp_path / "t").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["fault"], entry["members"], entry["trial"]["last_wrong_ms"]) == ("as-killed", 3, 30)
