"""The event loop of the sidecar: work that is done again and again is done together."""

from hypothesis import given
from hypothesis import strategies as st
from ppe_agent.loop import until_next_s

INTERVALS = st.sampled_from([0.25, 0.5, 1.0])


@given(INTERVALS, st.integers(0, 10**9))
def test_repeated_work_falls_on_a_multiple_of_its_interval(interval_s: float, now_ms: int) -> None:
    now = now_ms / 1000
    wait_s = until_next_s(interval_s, now)
    assert interval_s / 2 <= wait_s <= 1.5 * interval_s
    off_s = (now + wait_s) % interval_s
    assert min(off_s, interval_s - off_s) < 1e-6


def test_repeated_work_that_is_a_little_late_keeps_the_pace() -> None:
    assert abs(until_next_s(0.5, 10.004) - 0.496) < 1e-9
