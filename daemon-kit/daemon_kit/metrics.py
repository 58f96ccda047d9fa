"""Prometheus metrics without cost where things happen: plain numbers, read when somebody asks for them.

A service counts in ints and in `BucketCounts`; a `Collector` of its own turns these into metric families when
it is scraped, and `exposition()` into the text. Wants the package prometheus-client, which not every service
needs; it is loaded when it is, since no start should wait for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import HistogramMetricFamily
    from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The Content-Type of what `exposition()` gives."""


class BucketCounts:
    """The counts of a histogram; `bounds` are the upper ends of its buckets, rising, without infinity."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self._counts)

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Add these counts to a family, under `labels`."""
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, map(float, self._bounds)), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        family.add_metric(list(labels), buckets, self._sum)


def registry(*collectors: Collector) -> CollectorRegistry:
    """A registry of its own with these collectors, and what the kernel knows of this process."""
    from prometheus_client import CollectorRegistry, ProcessCollector

    own = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=own)
    for collector in collectors:
        own.register(collector)
    return own


def exposition(of: CollectorRegistry) -> bytes:
    """Everything in Prometheus's text format."""
    from prometheus_client.exposition import generate_latest

    return generate_latest(of)
