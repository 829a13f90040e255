"""Whether a difference says anything, and whether it is the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paircaps.paper.records import Summary

CRITICAL = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Standard errors that chance alone exceeds in one case of twenty, for 1, 2, 3 … degrees of freedom (Student's t)."""


@dataclass(frozen=True)
class Difference:
    """Of two means over seeds.

    Args:
        points: the first less the second, in percent.
        error: its standard error; None where one of them has a single seed.
        is_clear: whether chance alone, over so few seeds, exceeds it in less than one case of twenty.
    """

    points: float
    error: float | None
    is_clear: bool


def difference(a: Summary, b: Summary) -> Difference:
    """How far one network is above another."""
    points = a.mean - b.mean
    if a.error is None or b.error is None:
        return Difference(points, None, False)
    error = math.hypot(a.error, b.error)
    return Difference(points, error, error > 0 and abs(points) > critical(a, b) * error)


def critical(a: Summary, b: Summary) -> float:
    """Standard errors from which two means differ clearly, by the freedom that so few seeds leave (Welch's test)."""
    squares = [((one.error or 0.0) ** 2, one.seeds - 1) for one in (a, b)]
    spread = sum(square**2 / freedom for square, freedom in squares)
    freedom = sum(square for square, _ in squares) ** 2 / spread
    return CRITICAL[min(len(CRITICAL), max(1, math.floor(freedom))) - 1]


@dataclass(frozen=True)
class Verdict:
    """A comparison that the paper makes, made again.

    Args:
        text: what came out, as "FM agreement above dynamic routing".
        agrees: whether it is as in the paper; None where it cannot be told.
    """

    text: str
    agrees: bool | None


def verdict_sentence(verdicts: Sequence[Verdict]) -> str:
    """What agrees with the paper, what does not, and what is open; empty if the paper makes no such comparison."""
    parts = []
    for title, agrees in (("As in the paper", True), ("Against the paper", False), ("Not to be told yet", None)):
        texts = [verdict.text for verdict in verdicts if verdict.agrees is agrees]
        if texts:
            parts.append(f"{title}: {'; '.join(texts)}.")
    return " ".join(parts)
