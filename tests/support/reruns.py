"""Runs again at once what failed while the machine stood still (pytest-rerunfailures); the summary says why.

A test that is `exact`, and a BrokenError, have no second run: no machine explains them. A test that fails
without a stall, or three times, is left to second_try.py.
"""

import time
from collections.abc import Generator
from functools import partial

import pytest

from tests.support.exact import BrokenError
from tests.support.stalls import Mark, watch

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
