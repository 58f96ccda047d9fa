"""`rspdns-lab compare`, shortened: a voice whose server loses its power, by DNS and by address takeover."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.labs import LAB, as_ordinary_user


@pytest.mark.timeout(240)
def test_a_voice_comes_back(tmp_path: Path) -> None:
    report = tmp_path / "compare.json"
    lab = (*as_ordinary_user(), *LAB)
    command = [*lab, "compare", "--quick", "--fault", "power-cut", "--calls", "1"]
    command += ["--approach", "rspdns", "--approach", "vrrp-tuned", "--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    results = {one["approach"]: one for one in json.loads(report.read_text())["results"]}
    assert set(results) == {"rspdns", "vrrp-tuned"}
    for one in results.values():
        assert one["converged_max_ms"] is not None
        # It was gone, since its server was; and it came back, since another one took over.
        assert 20 <= one["glitch_median_ms"] < 7000
