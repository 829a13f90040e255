"""Timing on a noisy machine: every case in turn, again and again, and the median of each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds of one case.

    Args:
        median: of all repeats.
        low: a quarter of them took less.
        high: a quarter of them took more.
        repeats: how many.
    """

    median: float
    low: float
    high: float
    repeats: int


def interleaved(cases: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 1) -> dict[str, Timing]:
    """Time every case ``repeats`` times, one of each in turn, so that a slow minute is slow for all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(warm_up + repeats):
        for name, run in cases.items():
            begin = time.perf_counter()
            run()
            if repeat >= warm_up:
                seconds[name].append(time.perf_counter() - begin)
    return {name: _summary(values) for name, values in seconds.items()}


def _summary(values: list[float]) -> Timing:
    low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return Timing(median, low, high, len(values))
