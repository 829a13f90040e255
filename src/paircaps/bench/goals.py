"""What a benchmark must show, and whether it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """A bound.

    Args:
        measure: what is bounded.
        at_most: the bound.
        found: what was measured.
    """

    measure: str
    at_most: float
    found: float

    @property
    def met(self) -> bool:
        """Whether it holds."""
        return self.found <= self.at_most


def goals_as_markdown(goals: Sequence[Goal]) -> list[str]:
    """Lines of a table."""
    lines = ["| measure | at most | found | |", "|---|---|---|---|"]
    for goal in goals:
        met = "met" if goal.met else "**not met**"
        lines.append(f"| {goal.measure} | {_number(goal.at_most)} | {_number(goal.found)} | {met} |")
    return lines


def _number(value: float) -> str:
    """A small ratio as one over something, as it is spoken."""
    return f"1/{1 / value:.3g}" if 0 < value < 0.4 else f"{value:.4g}"
