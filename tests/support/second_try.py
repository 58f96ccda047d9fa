"""The tests that run again after they failed: at once, while the machine stood still, or alone, at the end
of the run.

At once (pytest-rerunfailures): a test during which nothing ran. At the end (setup/run_tests.sh): what failed
otherwise, or three times. A failure that no machine explains has no second run: a test that is `exact`, a
BrokenError, and many failures. The summary names all that ran again, and why.
"""

import time
from collections.abc import Generator
from functools import partial

import pytest

from tests.support.stalls import Mark, watch


class BrokenError(AssertionError):
    """Something died, was lost, doubled or wrong, whatever the machine was doing."""


EXIT_CODE = 9
"""All that failed may be tried again. pytest itself uses 0 to 5."""
MOST = 20
"""More failures than this are no accident."""
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
        # A failed set-up of a whole file is one failure, however many tests then lack it.
        self._failed.add(report.nodeid.split("::")[0] if report.when == "setup" else report.nodeid)
        if not is_explained(report):
            self._is_final = True

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Leave the verdict to the second try."""
        if exitstatus == pytest.ExitCode.TESTS_FAILED and not self._is_final and len(self._failed) <= MOST:
            session.exitstatus = EXIT_CODE


MOST_RERUNS = 2
LONGEST_S = 60.0
"""A test that took longer is not run again here: it would delay the whole run."""
THE_MACHINE = "the machine"
"""The section of a failed test's report that says what kept the test from running."""
_BEGAN = pytest.StashKey[Mark]()
_STALL = pytest.StashKey[str]()


def mark_reruns(item: pytest.Item) -> None:
    """Let this test run again when a stall of the machine explains its failure."""
    if item.get_closest_marker("exact") is None:
        condition = partial(_is_explained_by_a_stall, item)
        item.add_marker(pytest.mark.flaky(reruns=MOST_RERUNS, condition=condition))


def _is_explained_by_a_stall(item: pytest.Item, error: BaseException | None) -> bool:
    if isinstance(error, BrokenError):
        return False
    return bool(item.stash.get(_STALL, "")) and time.monotonic() - item.stash[_BEGAN].at_s < LONGEST_S


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember when the test began."""
    item.stash[_BEGAN] = Mark.now()
    item.stash[_STALL] = ""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in the report of a failed test whether the machine stood still meanwhile."""
    report = yield
    if report.failed and _BEGAN in item.stash:
        item.stash[_STALL] = watch().since(item.stash[_BEGAN])
        report.sections.append((THE_MACHINE, item.stash[_STALL]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were run again, which, and why."""
    reruns = terminalreporter.stats.get("rerun", [])
    terminalreporter.write_line(f"tests run again: {len(reruns)}")
    for report in reruns:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = crash.message.splitlines()[0] if crash is not None and crash.message else ""
        stall = dict(report.sections).get(THE_MACHINE, "")
        terminalreporter.write_line(f"RUN AGAIN {report.nodeid} ({stall}): {said}")
