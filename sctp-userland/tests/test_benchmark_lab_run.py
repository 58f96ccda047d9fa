"""The benchmark runs and misses no aim by far; how good its figures are is for a quiet machine to tell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench_sctp.report import missed
from daemon import SCTP_USERLAND

from tests.support.builds import build
from tests.support.second_try import BrokenError

pytestmark = pytest.mark.integration

FAR = {
    "round_trip_ratio_best": 14,  # the aim is 7
    "idle_cpu_percent": 2,  # 1
    "idle_cpu_heartbeat_1s_percent": 10,
}
TOLD_MS, TOLD_TIMES_TCP = 20, 5
"""A quarter at least: who isn't told at once is told by a timeout, or never. More where TCP takes long."""


def test_quick_benchmark(tmp_path: Path) -> None:
    """Nothing lost, everything held; a slow machine alone makes it miss another aim (status 1)."""
    figures_file = tmp_path / "figures.json"
    build(SCTP_USERLAND, "build/in-process")
    command = [sys.executable, "-m", "bench_sctp", "--quick", "--json", str(figures_file)]
    environment = {**os.environ, "PYTHONPATH": str(SCTP_USERLAND / "bench")}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    figures = json.loads(figures_file.read_text())
    if figures["soak_lost"] or figures["soak_wrong"] or figures["associations_held"] != 1:
        raise BrokenError(run.stdout)
    assert figures["soak_requests"] == 10_000
    assert not {key: figures[key] for key, bound in FAR.items() if figures[key] > bound}, run.stdout
    for killed in ("killed", "killed_group"):
        bound_ms = max(TOLD_MS, TOLD_TIMES_TCP * figures[f"{killed}_tcp_median_ms"])
        assert figures[f"{killed}_quarter_ms"] <= bound_ms, run.stdout
    assert run.returncode == bool(missed(figures))
    assert "| SCTP round trip against UDP |" in run.stdout
