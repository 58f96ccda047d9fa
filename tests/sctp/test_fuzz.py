"""A fixed, short run of hostile calls and packets against sctpd, with AddressSanitizer and UBSan.

A longer one: `SCTP_FUZZ_SECONDS=600 pytest tests/sctp/test_fuzz.py`.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY, Namespace

pytestmark = pytest.mark.integration

SECONDS = float(os.environ.get("SCTP_FUZZ_SECONDS", "5"))
FOLDER = REPOSITORY / "sctp-userland"
FUZZ = Path(__file__).parent / "fuzz.py"


@pytest.fixture(scope="module")
def sanitized() -> Path:
    """Return sctpd built with the sanitizers."""
    subprocess.run(["make", "-s", "-C", str(FOLDER), "asan"], check=True, capture_output=True)
    return FOLDER / "build-asan" / "sctpd"


@pytest.mark.timeout(int(SECONDS) + 120)
@pytest.mark.parametrize("what", ["calls", "packets"])
def test_hostile(what: str, sanitized: Path, namespace: Namespace, tmp_path: Path) -> None:
    """Nothing ends it, and it serves afterwards."""
    log = tmp_path / "log"
    daemon = namespace.start(
        str(sanitized),
        "--socket-limit",
        "200",
        log=log,
        environment={"ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": ""},
    )
    time.sleep(1)
    run = namespace.run(sys.executable, str(FUZZ), what, str(SECONDS), "1", sctp=True, timeout_s=SECONDS + 60)
    assert daemon.poll() is None, log.read_text()
    assert run.returncode == 0, run.stderr + log.read_text()
    made = namespace.run(
        sys.executable, "-c", "import socket; socket.socket(2, 1, 132); print('made')", sctp=True
    )
    assert made.stdout == "made\n", made.stderr
    daemon.terminate()
    assert daemon.wait(10) == 0, log.read_text()
    assert "ERROR" not in log.read_text()
