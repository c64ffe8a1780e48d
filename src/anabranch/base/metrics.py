"""Metrics: plain numbers that parts keep where things happen, and that a scrape reads now and then.

    counts    │ 0 │ 7 │ 31 │ 4 │ 0 │        Histogram((1, 5, 10, 50))
    up to       1   5   10   50   more

A part counts by adding to an int of its own.  What is measured goes into a histogram of fixed buckets, which
costs a bisection.  Names, labels and text are for whoever answers the scrape (`admin/metrics`): nothing here
knows of them, and nothing is looked up by name where things happen.
"""

from bisect import bisect_left
from collections.abc import Sequence

LATENCY_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01),
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Buckets for what takes a request or the disk a while."""


class Histogram:
    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_S) -> None:
        """A value is counted in the bucket of the least bound that it does not exceed, or in the last."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)
