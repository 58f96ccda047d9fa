"""The benchmark runs and misses no aim by far; how good its figures are is for a quiet machine to tell."""

import json
import subprocess
from pathlib import Path

import pytest
from rspdns_lab.bench_sctp.report import missed

from tests.support.namespaces import REPOSITORY
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
    command = [str(REPOSITORY / ".venv/bin/rspdns-lab"), "bench-sctp", "--quick", "--json", str(figures_file)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
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
