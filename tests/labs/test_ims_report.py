"""Reports of the IMS lab: what a reader and a program find in them."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from rspdns_lab.cli import main
from rspdns_lab.ims.calls import Measurement
from rspdns_lab.ims.faults import FAULTS
from rspdns_lab.ims.report import as_markdown, page_of, problems, summaries
from rspdns_lab.ims.shares import due
from rspdns_lab.report.html import write_page

TRIALS = [
    Measurement("as-hung", "rspdns", 1, [(-1.0, 9.0, "as1"), (1.0, 12.0, "as2")], [0.3]),
    Measurement(
        "as-killed", "static", 1, [(-1.0, 9.0, "as1"), (1.0, 32000.0, "as2"), (2.0, None, "")], [1.0, 2.0]
    ),
    Measurement("as-killed", "rspdns", 1, [(-1.0, 9.0, "as1"), (1.0, 12.0, "as2")], []),
]


def test_faults_come_in_the_order_of_the_lab() -> None:
    assert [one.fault for one in summaries(TRIALS)] == ["as-killed", "as-killed", "as-hung"]


def test_a_static_zone_may_break_what_rspdns_may_not() -> None:
    assert problems(TRIALS) == []
    late = Measurement("as-killed", "rspdns", 2, [(1.0, None, "")], [9.5])
    found = problems([*TRIALS, late])
    assert len(found) == 2
    assert "1 calls failed" in found[0]
    assert "9.5 s" in found[1]


def test_the_markdown_has_a_row_for_each_approach() -> None:
    text = as_markdown(TRIALS)
    assert re.search(r"\| static zone .*\| 2 \| 1 \| 1 \| 32,000 \|.*\| 2 \| 2 \|", text)
    assert "as1 100%" in text


@pytest.mark.parametrize(
    ("late", "problem"),
    [
        (["as2", "as3", "as2", "as3", "as2", "as3", "as2", "as1"], ""),
        (["as2", "as3", "as1"], "as1 kept 33% of the calls from 6 s after the fault on, allowed: 15%"),
        (["as1"], "as1 kept 100% of the calls"),
        ([], "no call was answered 6 s after the fault or later"),
    ],
)
def test_rspdns_must_move_calls_away_from_an_overloaded_server(late: Sequence[str], problem: str) -> None:
    early = [(-1.0, 9.0, "as1"), (5.9, 9.0, "as1")]  # its load rises: not judged yet
    calls = [*early, *((6.0 + index, 9.0, server) for index, server in enumerate(late))]
    found = problems([Measurement("as-overloaded", "rspdns", 1, calls, None)])
    assert [one.startswith(f"as-overloaded: {problem}") for one in found] == ([True] if problem else [])
    assert problems([Measurement("as-overloaded", "static", 1, calls, None)]) == []


def test_calls_per_server_stand_beside_what_the_weights_say() -> None:
    text = as_markdown(TRIALS)
    assert "| rspdns | as1 44%, as2 33%, as3 22% | as1 100% | as1 0%, as2 60%, as3 40% | as2 100% |\n" in text
    assert re.search(
        r"\| static zone .*\| as1 33%, as2 33%, as3 33% \|.*\| as1 0%, as2 50%, as3 50% \|", text
    )


def test_where_calls_go_once_weights_have_followed_is_told_where_a_load_rose() -> None:
    """After other faults it would be the same, or one call that came late."""
    moved = Measurement("as-overloaded", "rspdns", 1, [(-1.0, 9.0, "as1"), (7.0, 9.0, "as2")], None)
    assert "| as2 100% | as2 100% |" in as_markdown([moved])
    assert "calls from 6 s after on" not in as_markdown(TRIALS)


def test_a_load_that_rises_changes_what_is_due_where_loads_are_known() -> None:
    overloaded = next(fault for fault in FAULTS if fault.name == "as-overloaded")
    assert due("rspdns", overloaded) == pytest.approx({"as1": 0, "as2": 0.6, "as3": 0.4})
    assert due("gdnsd", overloaded) == pytest.approx({"as1": 1 / 3, "as2": 1 / 3, "as3": 1 / 3})


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = tmp_path / "ims.html"
    write_page(page, page_of(TRIALS))
    text = page.read_text()
    assert text.count("<svg") == 4  # of each fault: set-up delays, calls per server
    assert not re.search(r'(src|href)="(?!#)', text)
    assert "@import" not in text


def test_a_finished_run_is_resumed_without_a_lab(tmp_path: Path) -> None:
    file, page = tmp_path / "ims.json", tmp_path / "ims.html"
    trial = {
        "fault": "as-killed",
        "approach": "rspdns",
        "trial": 1,
        "calls": [[1.0, 9.0, "as2"]],
        "to_dead_s": [],
    }
    file.write_text(json.dumps({"trials": [trial]}))
    arguments = ["ims", "--fault", "as-killed", "--json", str(file), "--resume", "--html", str(page)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "as2 100%" in done.output
    assert page.exists()


def test_a_file_of_something_else_is_not_resumed(tmp_path: Path) -> None:
    file = tmp_path / "ims.json"
    file.write_text("[]")
    done = CliRunner().invoke(main, ["ims", "--json", str(file), "--resume"])
    assert done.exit_code == 2
    assert "no report of this lab" in done.output
