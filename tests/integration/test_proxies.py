"""A real HAProxy in front of servers of which one is cut off: with ppu-agent beside it no request waits."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.labs import LAB, traces


@pytest.mark.timeout(200)
def test_no_request_waits_for_an_upstream_that_is_cut_off(tmp_path: Path) -> None:
    figures = tmp_path / "proxies.json"
    command = [*LAB, "proxies", "--proxy", "haproxy", "--fault", "cut", "--seconds", "2"]
    command += ["--json", str(figures)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        story, _ = process.communicate(timeout=180)
    assert process.returncode in (0, 1), story  # 1: a promise that a busy machine may break
    without, beside = json.loads(figures.read_text())["rows"]
    assert (without["agent"], without["requests"], without["failed"]) == ("without", 50, 0), story
    assert (beside["agent"], beside["requests"], beside["failed"]) == ("ppu-agent", 50, 0), story
    assert without["max_ms"] > 4000, story
    assert beside["max_ms"] < without["max_ms"] / 2, story
    assert not traces(process.pid)
