"""lksctp-tools' own test suite, func_tests, on both stacks: sctpd, and the kernel of the guest.

make test-lksctp
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from lksctp.programs import SourceMissingError, built

from tests.support.guest import guest_command
from tests.support.namespaces import Namespace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

HERE = Path(__file__).parent / "lksctp"
RUNNER = HERE / "run_programs.py"

SUBTESTS = {43: 426, 47: 434}
"""How many pass on sctpd, by the number of programs: lksctp-tools 1.0.19 (Debian 12) and 1.0.21 (Debian 13).

On a kernel all 440 of 1.0.21 pass. Four programs came with it: test_interleave and test_re_conf, twice.
They leave out six subtests where /proc/sys/net/sctp has neither intl_enable nor reconf_enable.
"""


@pytest.fixture(scope="module")
def programs() -> Path:
    """Return the folder of the built programs; skip where their source can't be had."""
    try:
        return built()
    except SourceMissingError as missing:
        if os.environ.get("LKSCTP_REQUIRED"):
            pytest.fail(str(missing))
        pytest.skip(f"lksctp-tools' source can't be had: {missing}")


def results(lines: Iterable[str]) -> dict[str, dict[str, object]]:
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return {str(result["program"]): result for result in found}


def failed(found: dict[str, dict[str, object]]) -> dict[str, object]:
    return {
        name: result["output_end"]
        for name, result in found.items()
        if result["status"] != 0 or result["broken"]
    }


def test_on_sctpd(programs: Path, namespace: Namespace) -> None:
    run = namespace.run(sys.executable, str(RUNNER), str(programs), sctp=True, timeout_s=500)
    found = results(run.stdout.splitlines())
    assert len(found) == len(list(programs.iterdir())), run.stderr
    assert failed(found) == {}
    passed = sum(int(str(result["passed_count"])) for result in found.values())
    assert passed >= SUBTESTS[len(found)]


def test_on_a_kernel(programs: Path, tmp_path: Path) -> None:
    """All of them: what fails there is no measure."""
    told = tmp_path / "results"
    command = guest_command(HERE / "job.sh", memory_mb=512, results=told, programs=programs)
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500, check=False
    )
    assert told.exists(), done.stdout
    found = results(told.read_text().splitlines())
    assert len(found) == len(list(programs.iterdir()))
    assert failed(found) == {}
