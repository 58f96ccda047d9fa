"""What no busy machine explains: a test that says so is never run again.

A test whose whole promise is of that kind ("none lost, none twice, none wrong", no report of a sanitizer) is
marked `exact` instead, and waits for each message long enough (30 s) that only a fault can make it late.
"""

import pytest


class BrokenError(AssertionError):
    """Something died, was lost, doubled or wrong, whatever the machine was doing."""


AGAIN = pytest.mark.flaky(reruns=1, rerun_except=[f"^{BrokenError.__name__}:"])
"""Of a test that a machine can fail which stops whole labs for seconds. The summary names what ran again."""
