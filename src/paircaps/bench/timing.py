"""Timing on a noisy machine: every case in turn, again and again, and the median of each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

LEAST_REPEATS = 5
MOST_REPEATS = 41


def silent(what: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one case.

    Args:
        median: of all repeats.
        low: a quarter of them took less.
        high: a quarter of them took more.
        seconds: of every repeat, in order.
    """

    median: float
    low: float
    high: float
    seconds: tuple[float, ...]

    @property
    def repeats(self) -> int:
        """How many."""
        return len(self.seconds)

    def in_milliseconds(self) -> dict[str, float | int]:
        """For JSON."""
        return {
            "median": 1e3 * self.median,
            "low": 1e3 * self.low,
            "high": 1e3 * self.high,
            "repeats": self.repeats,
        }


def interleaved(cases: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 1) -> dict[str, Timing]:
    """Time every case ``repeats`` times, one of each in turn, so that a slow minute is slow for all of them.

    Each round begins with another case, for what runs after a large one finds cold caches.
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
    """How many rounds of all cases take that long, within bounds; running each once, it warms them up too."""
    for run in cases.values():
        run()
    begin = time.perf_counter()
    for run in cases.values():
        run()
    return min(MOST_REPEATS, max(LEAST_REPEATS, round(seconds / (time.perf_counter() - begin))))


def summary(values: list[float]) -> Timing:
    """Median and quartiles."""
    low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return Timing(median, low, high, tuple(values))


def ratio(one: Timing, other: Timing) -> Timing:
    """How long one case took beside another in the same rounds."""
    return summary([a / b for a, b in zip(one.seconds, other.seconds, strict=True)])
