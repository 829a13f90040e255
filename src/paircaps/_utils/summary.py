"""Mean and standard deviation of a number over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of a number over seeds.

    Args:
        mean: mean over seeds.
        deviation: standard deviation over seeds, with n − 1; None for a single seed.
        seeds: number of seeds.
    """

    mean: float
    deviation: float | None
    seeds: int

    @property
    def error(self) -> float | None:
        """Standard error of the mean."""
        return None if self.deviation is None else self.deviation / math.sqrt(self.seeds)

    def __str__(self) -> str:
        """Mean ± standard deviation, with two decimals; the mean alone for a single seed."""
        return f"{self.mean:.2f}" + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


def summarise(values: Sequence[float]) -> Summary:
    """Mean and standard deviation of a number over seeds.

    Args:
        values: the number for each seed.
    """
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Summary(statistics.fmean(values), deviation, len(values))
