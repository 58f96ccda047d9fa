"""The whole chain of the demo on a kernel's own SCTP, in a User-Mode Linux guest, without sctp-userland."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.guest import guest_command

JOB = Path(__file__).parent / "demo_on_a_kernel.sh"
STEPS = ["as-killed", "as-back", "as-drained", "as-link-cut", "registrar-killed", "name-server-killed"]


@pytest.mark.timeout(900)
def test_the_demo_keeps_its_bounds_on_a_kernels_sctp(tmp_path: Path) -> None:
    """System calls are some 50 times slower in there, so times are stretched; wrong stays wrong."""
    results = tmp_path / "demo.json"
    done = subprocess.run(
        guest_command(JOB, memory_mb=1024, python=sys.executable, results=results),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    written = {path.suffix: path.read_text() for path in tmp_path.glob("demo.json.*")}
    assert ".story" in written, done.stdout
    assert written[".checksctp"].strip() == "SCTP supported"
    environment = written[".environment"]
    assert "PATH=" in environment
    assert "LD_PRELOAD" not in environment, "sctp-run adds nothing where the kernel has SCTP"
    story = written[".story"]
    assert results.exists(), story
    outcome = json.loads(results.read_text())
    assert outcome["ok"] is True, story
    steps = {step["name"]: step for step in outcome["steps"]}
    assert list(steps) == STEPS
    for step in steps.values():
        assert (step["empty"], step["servfail"]) == (0, 0), story
        assert step["answers"] > 50, story
    # A fault that nobody can notice would prove nothing. (A killed server may be gone between two questions.)
    assert steps["as-link-cut"]["wrong"] > 0
    assert steps["registrar-killed"]["wrong"] == 0
    assert steps["name-server-killed"]["wrong"] == 0
