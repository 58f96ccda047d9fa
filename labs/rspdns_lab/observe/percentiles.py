"""Percentiles of what was measured. Pure."""

from collections.abc import Iterable


def percentile(values: Iterable[float], percent: int) -> float:
    """Return the smallest value that at least `percent` (0 to 100) of all don't exceed; 0.0 of none.

    It is one that was measured, and none made up between two (the nearest rank).
    """
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, rank - 1)] if ordered else 0.0
