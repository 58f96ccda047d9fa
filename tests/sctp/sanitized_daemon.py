"""Has whole files of tests run with the sctpd that has AddressSanitizer and UBSan."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builds import sanitized


@pytest.fixture(scope="module")
def sanitized_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Have sctp-run and `sctpd()` take it, and return it; afterwards none may have reported anything.

    Leaks aren't looked for: most of these tests kill their daemons. `test_sanitizers.py` does.
    """
    build, reports = sanitized(), tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCTP_USERLAND_BUILD", str(build))
        patch.setenv("ASAN_OPTIONS", f"log_path={reports}/report:detect_leaks=0:quarantine_size_mb=16")
        patch.setenv("UBSAN_OPTIONS", f"log_path={reports}/report:print_stacktrace=1")
        yield build / "sctpd"
    found = [report.read_text() for report in reports.iterdir()]
    assert not found, "\n".join(found)
