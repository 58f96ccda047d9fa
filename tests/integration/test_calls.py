"""The lab of calls on real parts, Kamailio among them: with ppu-agent beside the client no call waits."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.labs import LAB, traces

WAYS = ("redirect-udp",)
TIMER_B_MS = 32_000
"""The time that a client without an answer waits."""


@pytest.mark.timeout(400)
def test_no_call_waits_for_a_server_that_is_killed_or_hangs(tmp_path: Path) -> None:
    figures = tmp_path / "calls.json"
    command = [*LAB, "ims", "--ppu", "--quick", "--json", str(figures)]
    command += [word for way in WAYS for word in ("--way", way)]
    command += ["--fault", "as-killed", "--fault", "as-hung"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        story, _ = process.communicate(timeout=380)
    assert process.returncode in (0, 1), story  # 1: a promise that a busy machine may break
    rows = json.loads(figures.read_text())["rows"]
    assert len(rows) == 2 * len(WAYS)
    for row in rows:
        assert (row["calls"], row["failed"]) == (110, 0), story
        assert row["max_ms"] < TIMER_B_MS / 2, story
    assert not traces(process.pid)
