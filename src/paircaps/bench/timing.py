"""Timing on a noisy machine: cases take turns, and the median of each is reported."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

LEAST_REPEATS = 5
MOST_REPEATS = 41
"""Bounds on the number of repeats that :func:`repeats_within` returns."""


def silent(what: str) -> None:
    """Print no progress line."""


@dataclass(frozen=True)
class Timing:
    """Measured seconds of one case.

    Args:
        median: median of all repeats.
        low: first quartile.
        high: third quartile.
        seconds: seconds of every repeat, in order.
    """

    median: float
    low: float
    high: float
    seconds: tuple[float, ...]

    @property
    def repeats(self) -> int:
        """Number of repeats."""
        return len(self.seconds)

    def in_milliseconds(self) -> dict[str, float | int]:
        """Median and quartiles in milliseconds, and the number of repeats, for JSON."""
        return {
            "median": 1e3 * self.median,
            "low": 1e3 * self.low,
            "high": 1e3 * self.high,
            "repeats": self.repeats,
        }


def interleaved(cases: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 1) -> dict[str, Timing]:
    """Time all cases in turn, so that a slow minute of the machine slows all of them alike.

    Each round begins with another case, since a case that runs after a large one finds cold caches.

    Args:
        cases: functions to time, by name.
        repeats: timed runs of every case.
        warm_up: runs of every case before them, which do not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for repeat in range(warm_up + repeats):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            begin = time.perf_counter()
            cases[name]()
            if repeat >= warm_up:
                seconds[name].append(time.perf_counter() - begin)
    return {name: summary(values) for name, values in seconds.items()}


def repeats_within(cases: Mapping[str, Callable[[], object]], seconds: float) -> int:
    """Number of rounds of all cases that take about ``seconds``, from LEAST_REPEATS to MOST_REPEATS.

    Every case is run twice, so this is a warm-up too.
    """
    for run in cases.values():
        run()
    begin = time.perf_counter()
    for run in cases.values():
        run()
    return min(MOST_REPEATS, max(LEAST_REPEATS, round(seconds / (time.perf_counter() - begin))))


def summary(values: list[float]) -> Timing:
    """Median and quartiles of measured values."""
    low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return Timing(median, low, high, tuple(values))


def ratio(one: Timing, other: Timing) -> Timing:
    """Ratio of the times of two cases, round by round."""
    return summary([a / b for a, b in zip(one.seconds, other.seconds, strict=True)])
