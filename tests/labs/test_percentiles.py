"""Percentiles: always a value that was measured."""

import pytest
from rspdns_lab.observe.percentiles import percentile


@pytest.mark.parametrize(
    ("values", "percent", "value"),
    [
        ([], 50, 0),
        ([7.0], 99, 7),
        ([1.0, 9.0], 50, 1),
        ([4.0, 3.0, 2.0, 1.0], 0, 1),
        ([4.0, 3.0, 2.0, 1.0], 50, 2),
        ([4.0, 3.0, 2.0, 1.0], 51, 3),
        (range(100, 0, -1), 7, 7),
        (range(100, 0, -1), 99, 99),
        (range(100, 0, -1), 100, 100),
    ],
)
def test_a_percentile_is_one_of_the_values(values: list[float], percent: int, value: float) -> None:
    assert percentile(values, percent) == value
