"""Which failed tests are tried once more: alone, at the end, by setup/run_tests.sh. The summary names them.

For tests of whole labs on a machine that stands still for seconds at a time. What no machine explains
(`exact`) fails the run at once, and so do many failures.
"""

import pytest

from tests.support.exact import BrokenError

EXIT_CODE = 9
"""All that failed may be tried again. pytest itself uses 0 to 5."""
MOST = 20
"""More than so many are no accident."""
BROKEN = f"{BrokenError.__module__}.{BrokenError.__name__}"


def is_explained(report: pytest.TestReport) -> bool:
    """Whether a busy machine may explain this failure."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return "exact" not in report.keywords and not (crash is not None and crash.message.startswith(BROKEN))


class SecondTry:
    """Collects what failed; a pytest plugin of the process that reports."""

    def __init__(self) -> None:
        self._failed: set[str] = set()
        self._is_final = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Judge one failure."""
        if not report.failed:
            return
        # What a whole file builds on is one failure, however many tests then lack it.
        self._failed.add(report.nodeid.split("::")[0] if report.when == "setup" else report.nodeid)
        if not is_explained(report):
            self._is_final = True

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Leave the verdict to the second try."""
        if exitstatus == pytest.ExitCode.TESTS_FAILED and not self._is_final and len(self._failed) <= MOST:
            session.exitstatus = EXIT_CODE
