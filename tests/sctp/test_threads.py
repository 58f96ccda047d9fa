"""The two threads of sctpd, with ThreadSanitizer: passed descriptors, and connections. No report."""

import sys
from pathlib import Path

import pytest

from tests.sctp.passing import LINGERS, passer
from tests.sctp.shared_daemon import ECHO
from tests.sctp.test_daemon import serves, wait_for
from tests.support.builds import SCTP_USERLAND, build
from tests.support.namespaces import Namespace

pytestmark = [pytest.mark.exact, pytest.mark.integration]

NOT_INSTRUMENTED = "race:libusrsctp.so"
TOLD = 66
"""Exit status of a program that ThreadSanitizer reported about."""


@pytest.mark.timeout(300)
def test_no_races(namespace: Namespace, tmp_path: Path) -> None:
    build("tsan")
    suppressions, log = tmp_path / "suppressions", tmp_path / "log"
    suppressions.write_text(f"{NOT_INSTRUMENTED}\n")
    daemon = namespace.start(
        str(SCTP_USERLAND / "build-tsan" / "sctpd"),
        log=log,
        environment={"TSAN_OPTIONS": f"suppressions={suppressions}:exitcode={TOLD}"},
    )
    assert wait_for(lambda: serves(namespace), 60), log.read_text()
    for _ in range(2):
        passed = namespace.run(*passer(namespace, LINGERS), timeout_s=100)
        assert passed.stdout == "done\n", passed.stdout + passed.stderr
        served = namespace.run(sys.executable, "-c", ECHO, sctp=True, timeout_s=100)
        assert served.stdout == "served\n", served.stderr
    daemon.terminate()
    assert daemon.wait(60) == 0, log.read_text()
    assert "ThreadSanitizer" not in log.read_text(), log.read_text()
