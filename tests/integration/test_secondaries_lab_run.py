"""`rspdns-lab secondaries`, shortened: no change is lost, and nothing is left."""

import json
import subprocess
from pathlib import Path

from tests.support.labs import LAB, traces


def test_the_lab_runs_and_leaves_nothing(tmp_path: Path) -> None:
    """Its times are those of the machine, which may be busy; what is wrong or lost is not."""
    words = ["secondaries", "--trials", "2", "--seconds", "5", "--cost-seconds", "2"]
    files = ["--json", str(tmp_path / "figures.json"), "--html", str(tmp_path / "page.html")]
    with subprocess.Popen(
        [*LAB, *words, *files], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as lab:
        said, problems = lab.communicate(timeout=280)
    assert lab.returncode in (0, 1), problems
    trials = json.loads((tmp_path / "figures.json").read_text())["trials"]
    assert [trial["kind"] for trial in trials] == ["death", "death", "restart", "stream", "stream", "stream"]
    assert trials[2]["lost"] == 0, said
    for stream in trials[3:]:
        assert (stream["behind"], stream["different"], stream["went_back"]) == (0, 0, 0), said
    assert "<svg" in (tmp_path / "page.html").read_text()
    assert traces(lab.pid) == []
