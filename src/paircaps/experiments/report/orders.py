"""What came out, in sentences: which network was better on which data, and whether the seeds can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paircaps.experiments.paper import Experiment
from paircaps.experiments.records import Cell, Summary, summarise
from paircaps.experiments.report.cells import percent
from paircaps.experiments.report.parts import Finding
from paircaps.training.recipe_text import differences

CRITICAL = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Standard errors that chance alone exceeds in one case of twenty, for 1, 2, 3 … degrees of freedom (Student's t)."""

_OWN = ("model.", "loss.name", "train.seed")
"""Keys in which the networks of a comparison differ."""


def order_sentences(experiment: Experiment, cells: Sequence[Cell]) -> list[Finding]:
    """The order on each dataset, and how far FM agreement is from each other network."""
    studies = [[cell for cell in cells if cell.study is study and cell.records] for study in experiment.studies]
    return [_of_study(here) for here in studies if here]


def _of_study(cells: Sequence[Cell]) -> Finding:
    seen = {cell.variant.title: _summary(cell) for cell in cells}
    ranked = sorted(seen, key=lambda title: -seen[title].mean)
    order = "; ".join(f"{title} {percent(seen[title])}" for title in ranked)
    data = cells[0].data
    if len(cells) == 1:
        return Finding(f"On {data}, in percent: {order}.", "No other network was run there.")
    order = f"Order on {data}, in percent: {order}."
    unlike = _unlike(cells)
    if unlike:
        return Finding(order, f"They were not trained alike ({unlike}), so the order says little.")
    first = next((cell for cell in cells if cell.variant.name == "fm"), cells[0])
    gaps = [_gap(first, cell) for cell in cells if cell is not first]
    return Finding(order, f"{first.variant.title} against {'; against '.join(gaps)}.")


def _summary(cell: Cell) -> Summary:
    return summarise([100 * record.measure("test") for record in cell.records])


def _unlike(cells: Sequence[Cell]) -> str:
    """Keys in which trainings of a comparison differ, though they should not."""
    first = cells[0].records[0].recipe
    found = {
        line.split(":")[0]
        for cell in cells
        for record in cell.records
        for line in differences(first, record.recipe)
        if not line.startswith(_OWN)
    }
    return ", ".join(sorted(found))


def _gap(one: Cell, other: Cell) -> str:
    """The difference of two networks, with its standard error over seeds."""
    a, b = _summary(one), _summary(other)
    difference = f"{other.variant.title}: {_signed(a.mean - b.mean)}"
    if a.error is None or b.error is None:
        return f"{difference} points, of one seed each, which cannot judge it"
    error = math.hypot(a.error, b.error)
    verdict = "clear" if abs(a.mean - b.mean) > critical(a, b) * error else "within what seeds alone may do"
    return f"{difference} ± {error:.2f} points, {verdict}"


def critical(a: Summary, b: Summary) -> float:
    """Standard errors from which two means differ clearly, by the freedom that so few seeds leave (Welch's test)."""
    squares = [((one.error or 0.0) ** 2, one.seeds - 1) for one in (a, b)]
    spread = sum(square**2 / freedom for square, freedom in squares)
    freedom = sum(square for square, _ in squares) ** 2 / spread if spread else math.inf
    return CRITICAL[min(len(CRITICAL), max(1, math.floor(freedom))) - 1] if math.isfinite(freedom) else 0.0


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")
