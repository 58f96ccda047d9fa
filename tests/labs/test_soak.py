"""Results of simulated scenarios that are added up over many runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rspdns_lab.errors import LabError
from rspdns_lab.simulate import cli
from rspdns_lab.simulate.regressions import Regression
from rspdns_lab.simulate.soak import read_results


def outcome(seed: int, code: str) -> dict[str, Any]:
    """The figures of a scenario; every seventh breaks a promise."""
    broken = [{"at_s": 31.5, "promise": "serials_grow", "words": "1 after 2"}] if seed % 7 == 0 else []
    return {
        "seed": seed,
        "minutes": 2.0,
        "faults": ["0: server-killed at 20.000 s for 1.000 s", "2: lossy at 30.000 s for 1.000 s"],
        "left_out": [1] if broken else [],
        "answers": 100,
        "cpu_s": 4.0,
        "worst_s": {"silent": seed / 100},
        "broken": broken,
        "code": code,
    }


class Workers:
    """In place of the processes that run scenarios: some version of the code, which may fail at a seed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = "aaaaaaaa"
        self.fails_at = 1000
        monkeypatch.setattr(cli, "_work", self._work)

    def _work(self, first: int, last: int, minutes: float, options: Sequence[str]) -> list[dict[str, Any]]:
        if first <= self.fails_at <= last:
            raise LabError("it was killed")
        return [outcome(seed, self.code) for seed in range(first, last + 1)]


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    return Workers(monkeypatch)


def soak(folder: Path, *more: str) -> str:
    options = ["--results", str(folder / "soak.jsonl"), "--markdown", str(folder / "page.md"), *more]
    return CliRunner().invoke(cli.simulate, options).output


def test_run_goes_on_after_the_last_seed_of_a_run_that_was_interrupted(
    tmp_path: Path, workers: Workers
) -> None:
    workers.fails_at = 25
    assert "it was killed" in soak(tmp_path, "--scenarios", "40")
    workers.fails_at = 1000
    soak(tmp_path, "--scenarios", "5")
    (result,) = read_results(tmp_path / "soak.jsonl")
    assert (result.first, result.scenarios, result.cpu_s, result.answers) == (1, 25, 100.0, 2500)
    assert result.faults == {"lossy": 25, "server-killed": 25}
    assert [seed for seed, _ in result.broken] == [7, 14, 21]
    page = (tmp_path / "page.md").read_text()
    assert "| scenarios | 25 | 25 |" in page
    assert "](page-2.svg)" in page
    assert ">lossy<" in (tmp_path / "page-2.svg").read_text()


def test_another_version_of_the_code_is_counted_by_itself_and_has_new_seeds(
    tmp_path: Path, workers: Workers
) -> None:
    soak(tmp_path, "--scenarios", "13")
    workers.code = "bbbbbbbb"
    soak(tmp_path, "--scenarios", "2")
    results = read_results(tmp_path / "soak.jsonl")
    assert [(result.code, result.first, result.scenarios) for result in results] == [
        ("aaaaaaaa", 1, 13),
        ("bbbbbbbb", 14, 2),
    ]
    page = (tmp_path / "page.md").read_text()
    assert "| scenarios | 15 | 2 |" in page
    assert "| scenarios with a broken promise | 2 | 1 |" in page
    assert "| silent | 150 ms | 15 |" in page
    assert "| serials grow | 14 | bbbbbbbb |" in page


def test_results_of_chosen_faults_are_refused(tmp_path: Path, workers: Workers) -> None:
    assert "leave out --faults" in soak(tmp_path, "--faults", "lossy")
    assert not (tmp_path / "soak.jsonl").exists()


def test_file_of_something_else_is_not_overwritten(tmp_path: Path, workers: Workers) -> None:
    (tmp_path / "soak.jsonl").write_text("minutes\n")
    assert "name another file" in soak(tmp_path)
    assert (tmp_path / "soak.jsonl").read_text() == "minutes\n"


def test_failing_seed_is_printed_with_its_line_for_the_regressions(tmp_path: Path, workers: Workers) -> None:
    output = soak(tmp_path, "--seed", "7", "--size", "3,4,2")
    assert "rspdns-lab simulate --seed 7 --minutes 2 --leave-out 1 --size 3,4,2 --trace -" in output
    line = next(line for line in output.splitlines() if "Regression(" in line)
    regression = eval(line.strip().rstrip(","), {"Regression": Regression})  # noqa: S307 - our own line
    assert regression.words == ["7", "7", "2", "--faults", "", "--leave-out", "1", "--size", "3,4,2"]
