"""`rspdns-lab scale`, shortened: costs of real registrars, and a small size simulated with them."""

import json
import subprocess
from pathlib import Path

from tests.support.labs import LAB, as_ordinary_user, traces


def test_costs_are_measured_and_a_small_size_is_simulated(tmp_path: Path) -> None:
    report = tmp_path / "scale.json"
    command = [*as_ordinary_user(), *LAB, "scale", "--quick", "--json", str(report)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        story, _ = process.communicate(timeout=300)
    assert process.returncode in (0, 1), story  # 1: a bound was broken, with the costs of a busy machine
    assert not traces(process.pid)
    costs, size = json.loads(report.read_text())["trials"]
    assert costs["kind"] == "costs"
    assert 1 < costs["keep_alive_us"] < 1000
    assert 1 < costs["registration_us"] < 5000
    assert costs["name_server_us"] > 0
    assert not size["wrong"], story
