"""What came out, in sentences: which network was better on which data, and whether the seeds can tell."""

from __future__ import annotations

from collections.abc import Sequence

from paircaps.paper.experiments import Experiment
from paircaps.paper.records import Cell, Summary, summarise
from paircaps.paper.report.cells import length_notes, percent, unlike_settings
from paircaps.paper.report.document import Finding
from paircaps.paper.report.significance import Verdict, difference, verdict_sentence

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
    rivals = _rivals(cells)
    gaps = [
        f"{one.variant.title} against {'; against '.join(_gap(one, other) for other in theirs)}."
        for one, theirs in rivals
    ]
    verdicts = [verdict for one, theirs in rivals for other in theirs for verdict in _verdict(one, other)]
    return Finding(f"Order on {data}, in percent: {results} ({how}).", " ".join(gaps), verdict_sentence(verdicts))


def _rivals(cells: Sequence[Cell]) -> list[tuple[Cell, list[Cell]]]:
    """FM agreement, of every kind, and each other network; the first one and the others where there is none."""
    ours = [cell for cell in cells if cell.variant.name.startswith("fm")] or [cells[0]]
    others = [cell for cell in cells if cell not in ours] or ours[1:]
    pairs = [(one, [other for other in others if other is not one]) for one in ours]
    return [(one, theirs) for one, theirs in pairs if theirs]


def _verdict(one: Cell, other: Cell) -> list[Verdict]:
    """What became of the paper's own comparison of two networks; nothing where it makes none."""
    paper = one.experiment.paper_order(one.study.data, one.variant.name, other.variant.name)
    if not paper:
        return []
    seen = difference(_summary(one), _summary(other))
    if not seen.is_clear:
        return [Verdict(f"{one.variant.title} against {other.variant.title}", None)]
    place = "above" if seen.points > 0 else "below"
    return [Verdict(f"{one.variant.title} {place} {other.variant.title}", seen.points * paper > 0)]


def _count(least: int, most: int) -> str:
    if least != most:
        return f"{least} to {most} seeds"
    return "one seed" if most == 1 else f"{most} seeds"


def _summary(cell: Cell) -> Summary:
    return summarise([100 * record.accuracy("test") for record in cell.records])


def _gap(one: Cell, other: Cell) -> str:
    """The difference of two networks, with its standard error over seeds."""
    a, b = _summary(one), _summary(other)
    seen = difference(a, b)
    told = f"{other.variant.title}: {_signed(seen.points)}"
    if seen.error is None:
        few = "one seed each" if a.seeds == b.seeds else f"{a.seeds} and {b.seeds} seeds"
        return f"{told} points, of {few}: too few to judge"
    if not seen.error:
        return f"{told} points, of seeds that do not differ at all: nothing to judge by"
    return f"{told} ± {seen.error:.2f} points, {'clear' if seen.is_clear else 'within the spread of the seeds'}"


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")
