"""Findings of a report in sentences: order of the networks on each dataset, their differences and the paper's order."""

from __future__ import annotations

from collections.abc import Sequence

from paircaps._utils.summary import Summary, summarise
from paircaps.paper.experiments import Experiment
from paircaps.paper.records import Cell
from paircaps.paper.report.cells import length_notes, unlike_settings
from paircaps.paper.report.document import Finding
from paircaps.paper.report.significance import Verdict, difference, verdict_sentence

_COMPARED_KEYS = ("model.name", "model.routing", "loss.name", "train.seed")
"""Beginnings of the keys in which the networks of a comparison differ on purpose."""


def order_sentences(experiment: Experiment, cells: Sequence[Cell]) -> list[Finding]:
    """Findings of an experiment: one for each dataset that was used, then one for each without results.

    Args:
        experiment: table or figure of the paper.
        cells: results of all its networks on all its datasets.
    """
    by_dataset: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.records:
            by_dataset.setdefault(cell.data, []).append(cell)
    missing = [
        Finding(
            f"Nothing on {study.data}: {', '.join(sorted({cell.reason for cell in cells if cell.study is study}))}.",
            is_empty=True,
        )
        for study in experiment.studies
        if not any(cell.records for cell in cells if cell.study is study)
    ]
    return [*(_finding_on(data, group) for data, group in by_dataset.items()), *missing]


def rival_sentences(cells: Sequence[Cell]) -> list[Finding]:
    """Findings on systems published by others, one for each dataset that they were trained on.

    Each has its own loss, optimiser and length, so they are listed and not ranked against the other networks.

    Args:
        cells: results of such systems.
    """
    by_dataset: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.records:
            by_dataset.setdefault(cell.data, []).append(cell)
    return [
        Finding(
            f"Systems published by others on {data}, each with its own loss and optimiser, in percent: "
            f"{'; '.join(f'{cell.variant.title} {_summary(cell)}' for cell in found)}."
        )
        for data, found in by_dataset.items()
    ]


def _finding_on(data: str, cells: Sequence[Cell]) -> Finding:
    """Finding on one dataset: the order of its networks, their differences, and whether they are the paper's."""
    summaries = {cell.variant.title: _summary(cell) for cell in cells}
    ranked = sorted(summaries, key=lambda title: -summaries[title].mean)
    results = "; ".join(f"{title} {summaries[title]}" for title in ranked)
    unlike = unlike_settings([record for cell in cells for record in cell.records], *_COMPARED_KEYS)
    if unlike:
        caution = f"They were not trained alike ({unlike}), so the order says little."
        return Finding(f"On {data}, in percent: {results}. {caution}")
    seeds = {len(cell.records) for cell in cells}
    how = "; ".join([_seeds_in_words(min(seeds), max(seeds)), *length_notes(cells[0])])
    if len(cells) == 1:
        return Finding(f"On {data}, in percent: {results} ({how}).", "No other network was run there.")
    rivals = _rivals(cells)
    gaps = [
        f"{one.variant.title} against {'; against '.join(_gap_in_words(one, other) for other in theirs)}."
        for one, theirs in rivals
    ]
    verdicts = [verdict for one, theirs in rivals for other in theirs for verdict in _verdict(one, other)]
    return Finding(f"Order on {data}, in percent: {results} ({how}).", " ".join(gaps), verdict_sentence(verdicts))


def _rivals(cells: Sequence[Cell]) -> list[tuple[Cell, list[Cell]]]:
    """Pairs to compare: each variant of FM agreement with all other networks; without FM, the first with the rest."""
    ours = [cell for cell in cells if cell.variant.name.startswith("fm")] or [cells[0]]
    others = [cell for cell in cells if cell not in ours] or ours[1:]
    pairs = [(one, [other for other in others if other is not one]) for one in ours]
    return [(one, theirs) for one, theirs in pairs if theirs]


def _verdict(one: Cell, other: Cell) -> list[Verdict]:
    """Result of the paper's comparison of two networks; empty if the paper does not compare them."""
    paper = one.experiment.paper_order(one.study.data, one.variant.name, other.variant.name)
    if not paper:
        return []
    gap = difference(_summary(one), _summary(other))
    if not gap.is_clear:
        return [Verdict(f"{one.variant.title} against {other.variant.title}", None)]
    place = "above" if gap.points > 0 else "below"
    return [Verdict(f"{one.variant.title} {place} {other.variant.title}", gap.points * paper > 0)]


def _seeds_in_words(least: int, most: int) -> str:
    if least != most:
        return f"{least} to {most} seeds"
    return "one seed" if most == 1 else f"{most} seeds"


def _summary(cell: Cell) -> Summary:
    return summarise([100 * record.accuracy("test") for record in cell.records])


def _gap_in_words(one: Cell, other: Cell) -> str:
    """Difference of two networks in words, with its standard error over seeds."""
    a, b = _summary(one), _summary(other)
    gap = difference(a, b)
    points = f"{other.variant.title}: {_signed(gap.points)}"
    if gap.error is None:
        few = "one seed each" if a.seeds == b.seeds else f"{a.seeds} and {b.seeds} seeds"
        return f"{points} points, of {few}: too few to judge"
    if not gap.error:
        return f"{points} points, of seeds that do not differ at all: nothing to judge by"
    return f"{points} ± {gap.error:.2f} points, {'clear' if gap.is_clear else 'within the spread of the seeds'}"


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")
