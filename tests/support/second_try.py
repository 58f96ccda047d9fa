"""The tests that run again, at once, after they failed: a shared machine can stop a whole lab for seconds.

pytest-rerunfailures runs them, and its summary names each with its traceback; pyproject.toml bounds the
reruns of all tests together. Failures that no busy machine explains are final: those of a test that runs no
program beside itself or is `exact`, and a BrokenError. So is the end of a test's time, which all its runs
share.
"""

import pytest


class BrokenError(AssertionError):
    """Something died, was lost, doubled or wrong, whatever the machine was doing."""


MOST_RERUNS = 2
RUN_PROGRAMS = ("sctp-userland", "guard")
"""Products whose own tests, in their folders, run programs."""
OUT_OF_TIME = "from pytest-timeout"


def mark_reruns(item: pytest.Item) -> None:
    """Let this test run again when a busy machine may explain its failure."""
    runs_programs = item.get_closest_marker("integration") or item.path.parent.parent.name in RUN_PROGRAMS
    if runs_programs and item.get_closest_marker("exact") is None:
        item.add_marker(pytest.mark.flaky(reruns=MOST_RERUNS, rerun_except=[BrokenError, OUT_OF_TIME]))
