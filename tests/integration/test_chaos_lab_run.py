"""A short chaos run on the real programs: a server killed, or out of reach, clocks and registrars."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.labs import CHAOS, traces

FAULTS = {
    "as-killed",
    "as-out-and-reported",
    "as-unreachable-from-name-servers",
    "clock-stepped-forward",
    "registrars-all-restarted",
    "registrars-restarted-in-turn",
}


@pytest.mark.timeout(300)
def test_the_quick_run_keeps_its_bounds_and_is_not_run_twice(tmp_path: Path) -> None:
    results, figures, page = (tmp_path / name for name in ("trials.json", "chaos.json", "chaos.html"))
    chosen = [f"--fault={fault}" for fault in sorted(FAULTS)]
    command = [*CHAOS, *chosen, "--results", str(results), "--json", str(figures), "--html", str(page)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as chaos:
        story, _ = chaos.communicate(timeout=280)
    assert chaos.returncode == 0, story
    assert not traces(chaos.pid)
    outcome = json.loads(figures.read_text())
    assert outcome["ok"] is True
    rows = {row["fault"]: row for row in outcome["faults"]}
    assert set(rows) == FAULTS
    for row in rows.values():
        assert (row["trials"], row["empty"], row["servfail"], row["problems"]) == (1, 0, 0, [])
        assert row["answers"] > 100
    assert rows["as-out-and-reported"]["report_off"] < 0.05
    assert rows["as-killed"]["max_ms"] > 0, "a fault that nobody can notice would prove nothing"
    assert len(json.loads(results.read_text())["trials"]) == len(FAULTS)
    assert page.read_text().count("<svg") == 1

    again = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert again.returncode == 0, again.stderr
    assert "a lab with" not in again.stderr, "what is done is not done again"
    assert json.loads(figures.read_text()) == outcome
