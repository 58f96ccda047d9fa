"""`rspdns-lab ims`, shortened: calls through an S-CSCF stand-in while an application server is killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rspdns_lab.leftovers import remove_leftovers


@pytest.mark.timeout(240)
def test_calls_while_a_server_is_killed(tmp_path: Path) -> None:
    report, page = tmp_path / "ims.json", tmp_path / "ims.html"
    command = [
        sys.executable,
        "-m",
        "rspdns_lab.cli",
        "ims",
        "--quick",
        "--fault",
        "as-killed",
        "--rate",
        "5",
    ]
    command += ["--approach", "static", "--approach", "rspdns", "--json", str(report), "--html", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode in (0, 1), done.stderr
    results = {one["approach"]: one for one in json.loads(report.read_text())["results"]}
    # The static zone goes on naming the dead: somebody waits for Timer B. With rspdns few do, soon nobody.
    assert results["static"]["max_ms"] > 31_000
    assert results["static"]["to_dead"] > results["rspdns"]["to_dead"]
    assert results["rspdns"]["failed"] == 0
    assert page.read_text().count("<svg") == 1
    assert remove_leftovers() == []
