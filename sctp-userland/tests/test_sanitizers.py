"""Real traffic through sctpd and the library with AddressSanitizer and UBSan: no report."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from daemon import sanitized, serves
from registrar_config import SCTPD_OPTIONS
from run_case import all_cases

from tests.support.builds import runtime
from tests.support.namespaces import Namespace
from tests.support.waiting import until

pytestmark = [pytest.mark.exact, pytest.mark.integration]

RUNNER = Path(__file__).parent / "run_case.py"

BAD_POINTERS = "cases_bad_pointers:"
"""The sanitizer looks at what the calls are given before the library does."""


@pytest.mark.timeout(600)
def test_conformance_cases_without_a_report(namespace: Namespace, tmp_path: Path) -> None:
    """All conformance cases in one process: each passes as without sanitizers, and none is left out."""
    build = sanitized()
    cases = [case for case in all_cases() if not case.startswith(BAD_POINTERS)]
    log, client_log = tmp_path / "sctpd.log", tmp_path / "client.log"
    daemon = namespace.start(
        str(build / "sctpd"),
        *shlex.split(SCTPD_OPTIONS),
        log=log,
        environment={"ASAN_OPTIONS": "detect_leaks=1"},
    )
    until(lambda: serves(namespace), told=log)
    client = namespace.start(
        "env",
        f"LD_PRELOAD={runtime()} {build / 'library' / 'libsctp-userland.so'}",
        "ASAN_OPTIONS=detect_leaks=0",  # Python's own
        sys.executable,
        str(RUNNER),
        *cases,
        log=client_log,
    )
    client.wait(500)
    assert daemon.poll() is None, log.read_text()
    daemon.terminate()
    assert daemon.wait(60) == 0, log.read_text()
    output = client_log.read_text()
    for text in (log.read_text(), output):
        assert "Sanitizer" not in text, text
        assert "runtime error" not in text, text
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert sorted(line["case"] for line in lines) == sorted(cases), output
    failed = {line["case"]: line["error"] for line in lines if not line["ok"]}
    assert not failed, failed
