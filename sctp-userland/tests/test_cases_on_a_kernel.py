"""The same conformance cases on a real kernel's SCTP, in a User-Mode Linux guest: sctpd is held to it."""

import json
import subprocess
from pathlib import Path

import pytest
from run_case import all_cases

from tests.support.guest import guest_command

KERNEL = Path(__file__).parent / "kernel"


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_every_case_on_a_kernel(tmp_path: Path) -> None:
    """Boot the guest once; it runs all cases, which takes under a minute."""
    results = tmp_path / "results"
    done = subprocess.run(
        guest_command(KERNEL / "job.sh", memory_mb=768, results=results),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert results.exists(), done.stdout
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert sorted(line["case"] for line in lines) == sorted(all_cases())
    failed = {line["case"]: line["error"] for line in lines if not line["ok"]}
    assert not failed, failed
    environment = Path(f"{results}.environment").read_text()
    assert "PATH=" in environment
    assert "LD_PRELOAD" not in environment, "sctp-run does nothing where the kernel has SCTP"
