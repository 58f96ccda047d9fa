"""`rspdns-lab cells`, shortened: two levels of names, the loss of a cell and of the upper triple."""

import json
import subprocess
from pathlib import Path

from tests.support.labs import LAB, as_ordinary_user, traces

LONGEST_MS = 10_000


def test_lost_cell_leaves_the_upper_answers_and_returns(tmp_path: Path) -> None:
    report = tmp_path / "cells.json"
    command = [*as_ordinary_user(), *LAB, "cells", "--quick", "--json", str(report)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        story, _ = process.communicate(timeout=300)
    assert process.returncode in (0, 1), story  # 1: a bound in ms was broken, on a busy machine
    assert not traces(process.pid)
    trials = json.loads(report.read_text())["trials"]
    losses = [trial for trial in trials if trial["kind"] == "loss"]
    assert [loss["fault"] for loss in losses] == ["silent"], story
    assert all(loss["gone_ms"] < LONGEST_MS and not loss["others_lost"] for loss in losses)
    (upper,) = (trial for trial in trials if trial["kind"] == "upper")
    assert upper["answers"] > 10
    assert upper["wrong"] == 0, story
    assert all(trial["gone_ms"] < LONGEST_MS for trial in trials if trial["kind"] != "loss")
