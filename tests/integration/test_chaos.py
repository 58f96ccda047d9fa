"""A short chaos run on the real programs: a server killed, or out of reach, clocks and registrars."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.fast_path import needs_bpf
from tests.support.labs import LAB, traces

# Generous: this is to find what is broken, not how fast a busy machine is.
CHAOS = (*LAB, "chaos", "--quick", "--follow", "poll", "--slack", "50")
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


@pytest.mark.timeout(300)
def test_kernel_that_answers_beside_a_failed_daemon_keeps_the_bounds(tmp_path: Path) -> None:
    needs_bpf()
    faults = ["as-killed-after-fastpath", "as-killed-while-fastpath-frozen"]
    chosen = [f"--fault={fault}" for fault in faults]
    figures = tmp_path / "chaos.json"
    command = [*CHAOS, "--fastpath", *chosen, "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answered by the kernel" in done.stderr
    rows = json.loads(figures.read_text())["faults"]
    assert [row["fault"] for row in rows] == faults
    for row in rows:
        assert (row["fastpath"], row["trials"], row["empty"], row["servfail"]) == (True, 1, 0, 0)
        assert row["max_ms"] > 0, "a fault that nobody can notice would prove nothing"


def test_a_broken_bound_is_the_exit_status(tmp_path: Path) -> None:
    results = tmp_path / "trials.json"
    trial = {"last_wrong_ms": 5000.0, "answers": 10}
    case = {"fault": "as-killed", "members": 3, "follow": "poll", "trial": trial}
    results.write_text(json.dumps({"trials": [case]}))
    command = [*CHAOS[:-2], "--fault", "as-killed", "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 1, done.stderr
    assert "max 5000" not in done.stdout
    assert "p99 5000 ms, allowed are 80 ms" in done.stdout
