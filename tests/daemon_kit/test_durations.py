"""Durations read the same everywhere."""

import pytest
from daemon_kit.durations import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (-3.0, "0 s"),
        (0.44, "0.4 s"),
        (7.0, "7 s"),
        (9.99, "9.9 s"),
        (59.9, "59 s"),
        (60.0, "1 min 0 s"),
        (200.4, "3 min 20 s"),
        (4030.6, "1 h 7 min"),
        (4080.0, "1 h 8 min"),
        (86_399.0, "23 h 59 min"),
        (190_800.0, "2 d 5 h"),
    ],
)
def test_a_duration_is_written_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
