"""Goals of benchmarks: upper bounds on measured values, and a table of which are met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """An upper bound on a measured value.

    Args:
        measure: description of the value.
        at_most: the upper bound.
        found: the value that was measured.
    """

    measure: str
    at_most: float
    found: float

    @property
    def met(self) -> bool:
        """True if the measured value is within the bound."""
        return self.found <= self.at_most


def goals_as_markdown(goals: Sequence[Goal]) -> list[str]:
    """Format goals as the lines of a table."""
    lines = ["| measure | at most | found | |", "|---|---|---|---|"]
    for goal in goals:
        met = "met" if goal.met else "**not met**"
        lines.append(f"| {goal.measure} | {_number(goal.at_most)} | {_number(goal.found)} | {met} |")
    return lines


def _number(value: float) -> str:
    """Format a number; a small ratio is written as a fraction, such as 1/8."""
    return f"1/{1 / value:.3g}" if 0 < value < 0.4 else f"{value:.4g}"
