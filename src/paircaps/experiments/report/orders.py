"""What came out, in sentences: which network was better on which data, and whether the seeds can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paircaps.experiments.paper import Experiment
from paircaps.experiments.records import Cell, Summary, summarise
from paircaps.experiments.report.cells import length_notes, percent, unlike_settings
from paircaps.experiments.report.parts import Finding

CRITICAL = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Standard errors that chance alone exceeds in one case of twenty, for 1, 2, 3 … degrees of freedom (Student's t)."""

_OWN = ("model.name", "model.routing", "loss.name", "train.seed")
"""Keys in which the networks of a comparison differ."""


def order_sentences(experiment: Experiment, cells: Sequence[Cell]) -> list[Finding]:
    """The order on each dataset that was used, and how far FM agreement is from each other network."""
    here: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.records:
            here.setdefault(cell.data, []).append(cell)
    missing = [
        Finding(
            f"Nothing on {study.data}: {', '.join(sorted({cell.reason for cell in cells if cell.study is study}))}.",
            empty=True,
        )
        for study in experiment.studies
        if not any(cell.records for cell in cells if cell.study is study)
    ]
    return [*(_of_data(data, group) for data, group in here.items()), *missing]


def _of_data(data: str, cells: Sequence[Cell]) -> Finding:
    seen = {cell.variant.title: _summary(cell) for cell in cells}
    ranked = sorted(seen, key=lambda title: -seen[title].mean)
    results = "; ".join(f"{title} {percent(seen[title])}" for title in ranked)
    unlike = unlike_settings([record for cell in cells for record in cell.records], *_OWN)
    if unlike:
        caution = f"They were not trained alike ({unlike}), so the order says little."
        return Finding(f"On {data}, in percent: {results}. {caution}")
    seeds = {len(cell.records) for cell in cells}
    how = "; ".join([_count(min(seeds), max(seeds)), *length_notes(cells[0])])
    if len(cells) == 1:
        return Finding(f"On {data}, in percent: {results} ({how}).", "No other network was run there.")
    return Finding(f"Order on {data}, in percent: {results} ({how}).", " ".join(_comparisons(cells)))


def _comparisons(cells: Sequence[Cell]) -> list[str]:
    """FM agreement, of every kind, against each other network; the first one against the others where there is none."""
    ours = [cell for cell in cells if cell.variant.name.startswith("fm")] or [cells[0]]
    others = [cell for cell in cells if cell not in ours] or ours[1:]
    return [
        f"{one.variant.title} against {'; against '.join(_gap(one, other) for other in others if other is not one)}."
        for one in ours
        if any(other is not one for other in others)
    ]


def _count(least: int, most: int) -> str:
    if least != most:
        return f"{least} to {most} seeds"
    return "one seed" if most == 1 else f"{most} seeds"


def _summary(cell: Cell) -> Summary:
    return summarise([100 * record.measure("test") for record in cell.records])


def _gap(one: Cell, other: Cell) -> str:
    """The difference of two networks, with its standard error over seeds."""
    a, b = _summary(one), _summary(other)
    difference = f"{other.variant.title}: {_signed(a.mean - b.mean)}"
    if a.error is None or b.error is None:
        few = "one seed each" if a.seeds == b.seeds else f"{a.seeds} and {b.seeds} seeds"
        return f"{difference} points, of {few}: too few to judge"
    error = math.hypot(a.error, b.error)
    if not error:
        return f"{difference} points, of seeds that do not differ at all: nothing to judge by"
    verdict = "clear" if abs(a.mean - b.mean) > critical(a, b) * error else "within the spread of the seeds"
    return f"{difference} ± {error:.2f} points, {verdict}"


def critical(a: Summary, b: Summary) -> float:
    """Standard errors from which two means differ clearly, by the freedom that so few seeds leave (Welch's test)."""
    squares = [((one.error or 0.0) ** 2, one.seeds - 1) for one in (a, b)]
    spread = sum(square**2 / freedom for square, freedom in squares)
    freedom = sum(square for square, _ in squares) ** 2 / spread
    return CRITICAL[min(len(CRITICAL), max(1, math.floor(freedom))) - 1]


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")
