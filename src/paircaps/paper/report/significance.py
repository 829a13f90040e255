"""Significance of differences between networks (Welch's t test), and whether they agree with the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paircaps._utils.summary import Summary

CRITICAL = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Critical values of Student's t, two-sided at 5 %, for 1, 2, 3, ... degrees of freedom."""


@dataclass(frozen=True)
class Difference:
    """Difference of two means over seeds.

    Args:
        points: first mean minus second mean, in percentage points.
        error: standard error of the difference; None if one of the means is of a single seed.
        is_clear: whether it is significant at 5 %.
    """

    points: float
    error: float | None
    is_clear: bool


def difference(a: Summary, b: Summary) -> Difference:
    """Difference of two networks' means, in percentage points."""
    points = a.mean - b.mean
    if a.error is None or b.error is None:
        return Difference(points, None, False)
    error = math.hypot(a.error, b.error)
    return Difference(points, error, error > 0 and abs(points) > critical(a, b) * error)


def critical(a: Summary, b: Summary) -> float:
    """Critical value of t for the difference of two means, with Welch's degrees of freedom rounded down."""
    squares = [((one.error or 0.0) ** 2, one.seeds - 1) for one in (a, b)]
    spread = sum(square**2 / freedom for square, freedom in squares)
    freedom = sum(square for square, _ in squares) ** 2 / spread
    return CRITICAL[min(len(CRITICAL), max(1, math.floor(freedom))) - 1]


@dataclass(frozen=True)
class Verdict:
    """Result of a comparison that the paper makes too.

    Args:
        text: the result, as "FM agreement above dynamic routing".
        agrees: whether it is as in the paper; None if the difference is not clear.
    """

    text: str
    agrees: bool | None


def verdict_sentence(verdicts: Sequence[Verdict]) -> str:
    """Sentence on which comparisons agree with the paper, which do not, and which are open; empty if there are none."""
    parts = []
    for title, agrees in (("As in the paper", True), ("Against the paper", False), ("Not to be told yet", None)):
        texts = [verdict.text for verdict in verdicts if verdict.agrees is agrees]
        if texts:
            parts.append(f"{title}: {'; '.join(texts)}.")
    return " ".join(parts)
