"""What fails while the machine stands still is repeated at once; the summary names it (a pytest plugin).

Not what is `exact`, nor a BrokenError: no machine explains them. What fails without a stall, or three times,
is left to second_try.py.
"""

import time
from collections.abc import Iterator

import pytest
from _pytest.runner import runtestprotocol

from tests.support.second_try import is_explained
from tests.support.stalls import Mark, watch

MOST = 3
LONGEST_S = 60.0
"""What takes longer is not repeated here: that a test run ends counts too."""
REPEATED = "repeated"


class Repeats:
    """Runs the tests of one process."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run one test, and again while it fails for want of a machine."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for reports in self._attempts(item, nextitem):
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _attempts(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[list[pytest.TestReport]]:
        for attempt in range(1, MOST + 1):
            mark = Mark.now()
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            failed = [report for report in reports if report.failed]
            explained = all(report.when == "call" and is_explained(report) for report in failed)
            in_time = time.monotonic() - mark.at_s < LONGEST_S
            stall = watch().since(mark) if failed and explained and in_time else ""
            if not stall or attempt == MOST:
                yield reports
                return
            for report in failed:
                report.outcome = REPEATED  # type: ignore[assignment]
                report.sections.append(("the machine", stall))
            yield failed
            item._initrequest()  # type: ignore[attr-defined]


class RepeatsTold:
    """Names what was repeated; for the process that reports."""

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show it as it happens."""
        return (REPEATED, "r", "REPEATED") if report.outcome == REPEATED else None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why."""
        for report in terminalreporter.stats.get(REPEATED, []):
            stall = dict(report.sections).get("the machine", "")
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message.splitlines()[0] if crash is not None and crash.message else ""
            terminalreporter.write_line(f"REPEATED {report.nodeid} ({stall}): {said}")
