"""A short chaos run on the real programs: a server is killed beside a fast path that fails."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.fast_path import needs_bpf
from tests.support.labs import CHAOS


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
