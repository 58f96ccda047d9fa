"""Hostile calls and packets against sctpd, with AddressSanitizer and UBSan; `make fuzz` runs longer.

Two ways: libFuzzer on sctpd's parts in one process, and mutated traffic against a real sctpd.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import SCTP_USERLAND, sanitized, serves

from tests.support.builds import build
from tests.support.namespaces import Namespace
from tests.support.waiting import until

pytestmark = [pytest.mark.exact, pytest.mark.integration]

SECONDS = float(os.environ.get("SCTP_FUZZ_SECONDS", "3"))
FEWEST = 100
GUIDED_SECONDS = 4
FUZZ = Path(__file__).parent / "fuzz.py"


@pytest.mark.timeout(int(SECONDS) + 300)
@pytest.mark.parametrize("what", ["calls", "packets"])
def test_hostile(what: str, namespace: Namespace, tmp_path: Path) -> None:
    """Nothing ends it, and it serves afterwards."""
    log = tmp_path / "log"
    daemon = namespace.start(
        str(sanitized() / "sctpd"),
        "--socket-limit",
        "200",
        log=log,
        environment={"ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": ""},
    )
    until(lambda: serves(namespace), told=log)
    run = namespace.run(sys.executable, str(FUZZ), what, str(SECONDS), "1", sctp=True, timeout_s=SECONDS + 60)
    assert daemon.poll() is None, log.read_text()
    assert run.returncode == 0, run.stderr + log.read_text()
    assert int(run.stdout) > FEWEST, "little was thrown"
    made = namespace.run(
        sys.executable, "-c", "import socket; socket.socket(2, 1, 132); print('made')", sctp=True
    )
    assert made.stdout == "made\n", made.stderr
    daemon.terminate()
    assert daemon.wait(60) == 0, log.read_text()
    assert "ERROR" not in log.read_text()


@pytest.fixture(scope="module")
def fuzzers() -> Path:
    """Return the folder of the fuzzers."""
    if shutil.which("clang") is None:
        pytest.fail("clang is missing: setup/debian-packages names it")
    build(SCTP_USERLAND, "fuzzers")
    return SCTP_USERLAND / "build-fuzz"


@pytest.mark.timeout(500)
@pytest.mark.parametrize("fuzzer", ["calls", "packets"])
def test_guided_by_coverage(fuzzer: str, fuzzers: Path, tmp_path: Path) -> None:
    """All seeds, then what is made of them: no crash, no report, no answer that isn't one.

    Most of the crafted packets get to the association they are for; the fuzzer itself looks whether one
    that nobody attacks lives on, and whether memory comes back.
    """
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    limits = ["-seed=1", f"-max_total_time={GUIDED_SECONDS}", "-max_len=2048", "-len_control=0"]
    command = [str(fuzzers / fuzzer), *limits, "-detect_leaks=0", f"-artifact_prefix={tmp_path}/"]
    run = subprocess.run(
        [*command, str(corpus), str(fuzzers / "seeds" / fuzzer)],
        env={**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=16"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-6000:]
    assert "Done " in run.stderr, run.stderr[-2000:]
    if fuzzer == "packets":
        told = re.search(r"crafted packets: (\d+), taken as an association's own: (\d+)", run.stderr)
        assert told is not None, run.stderr[-2000:]
        crafted, taken = int(told[1]), int(told[2])
        assert crafted > 100
        assert taken > crafted / 2, told[0]
