"""The figures of `rspdns-lab scale`: a small size keeps its promises, a broken gateway breaks one."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rspdns_lab.report.page import markdown_table
from rspdns_lab.scale.cli import REPORT, problems, read_costs, simulated
from rspdns_lab.scale.figures import CellRemoval, MessageCosts, ScaleOutcome, ScaleSize, ScaleTrial

COSTS = MessageCosts(11.0, 41.0, 3.0, 321.0, 10, 1000, 5.0, 1.0)
SMALL = ScaleSize(5, 24, 40, 3, places=6, steady_s=12.0, full_s=3.0, removals=2)
BROKEN = replace(
    ScaleSize(8, 24, 40, 2, places=6, steady_s=10.0, full_s=0.0, removals=0),
    moved_by=0.0,
    is_home_elsewhere=False,
)
OF_MACHINE = ("cpu_s", "full")


@pytest.fixture(scope="module")
def outcome() -> ScaleOutcome:
    return simulated(SMALL, COSTS)


def test_small_size_keeps_every_promise(outcome: ScaleOutcome) -> None:
    assert problems([COSTS, outcome]) == []
    faults = [removal.fault for removal in outcome.removals]
    assert faults == ["its registrars are killed", "killed", "silent"]
    assert all(len(removal.seen_ms) == SMALL.sample for removal in outcome.removals)
    silent_ms = outcome.removals[-1].seen_ms
    assert min(silent_ms) > 490, "a keep-alive is waited for"
    assert outcome.cut.cells
    assert outcome.cut.gone_ms
    assert outcome.full is not None
    assert outcome.full.registrations_per_s == pytest.approx(SMALL.servers / 2, rel=0.2)


def test_gateways_without_hysteresis_and_last_choice_break_bounds_each_time_alike() -> None:
    first, second = simulated(BROKEN, COSTS), simulated(BROKEN, COSTS)
    told = " ".join(problems([first]))
    assert "changes a second above" in told
    assert "a cell of a region that is cut off is named outside for" in told

    def of_seed(found: ScaleOutcome) -> dict[str, Any]:
        return {key: value for key, value in asdict(found).items() if key not in OF_MACHINE}

    assert of_seed(first) == of_seed(second)


def test_each_broken_promise_is_told(outcome: ScaleOutcome) -> None:
    busy = replace(outcome.registrars[0], worst=0.51)
    late = CellRemoval(3, "silent", [1001.0] * SMALL.sample)
    for change, words in (
        ({"registrars": [busy]}, "registrar 1 above is busy for 51% of ten seconds"),
        ({"changes_per_s": 5.0}, "5.0 changes a second above"),
        ({"removals": [late]}, "named for 1001 ms"),
        ({"removals": [replace(late, seen_ms=[1.0])]}, "2 times a name server went on naming a lost cell"),
        ({"wrong": ["1 s: n1 lost g1"]}, "living cells were lost 1 times, first at 1 s: n1 lost g1"),
        ({"cut": replace(outcome.cut, gone_ms=[1001.0])}, "is named outside for 1001 ms"),
        ({"cut": replace(outcome.cut, back_ms=0.0)}, "not every name server had every cell again"),
    ):
        (problem,) = problems([replace(outcome, **change)])
        assert words in problem


def test_report_is_read_back_and_shown(outcome: ScaleOutcome) -> None:
    trials: list[ScaleTrial] = [COSTS, outcome]
    assert [REPORT.read(dict(REPORT.write(trial))) for trial in trials] == trials
    page = REPORT.page(trials)
    text = "".join(markdown_table(section.table) for section in page.sections if section.table)
    assert "| what | 120 servers | bound |" in text
    assert "| telling one name server of one registration; 3.0 at least | 3.0 |" in text
    assert [len(section.plots) for section in page.sections] == [0, 0, 1, 1, 0]


def test_costs_of_an_earlier_run_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"trials": [REPORT.write(COSTS)]}))
    assert read_costs(file) == COSTS
