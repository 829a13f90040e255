"""Numbers of the paper and of our trainings as cells: what was run with less, or on other data, says so in the cell."""

from __future__ import annotations

from collections.abc import Sequence

from paircaps.paper.experiments import PaperNumber
from paircaps.paper.plan import Choice, candidate_data, paper_recipe, run_recipe
from paircaps.paper.records import Cell, Record, Summary, summarise
from paircaps.paper.report.document import TableCell, empty_cell
from paircaps.paper.training_length import Budget, epochs_of, share_of, total_steps
from paircaps.training.recipe import Recipe
from paircaps.training.recipe_io import changed_values

_TOLD = ("train.epochs", "train.steps")
"""The length, which is told anyway."""

_WHOLE = 0.995
"""Share of the paper's length from which a training counts as as long."""


def paper_entry(quoted: PaperNumber | None, is_ours: bool, decimals: int = 2) -> TableCell:
    """What the paper prints, with as many decimals."""
    if quoted is None:
        return empty_cell("not in the paper" if is_ours else "not reported")
    deviation = "" if quoted.deviation is None else f" ± {quoted.deviation:.{decimals}f}"
    return TableCell(f"{quoted.mean:.{decimals}f}{deviation}")


def result_entry(cell: Cell, measure: str) -> TableCell:
    """What came out here, with what it was run with."""
    if not cell.records:
        return empty_cell(cell.reason)
    seen = summarise([100 * record.accuracy(measure) for record in cell.records])
    notes = [*budget_notes(cell), *([cell.reason] if cell.reason else [])]
    if measure == "train":
        notes.insert(0, "of the last epoch, while it learned")
    return TableCell(percent(seen), (seeds_in_words(cell.records), *notes))


def percent(seen: Summary) -> str:
    """Mean ± deviation."""
    return f"{seen.mean:.2f}" + ("" if seen.deviation is None else f" ± {seen.deviation:.2f}")


def seeds_in_words(records: Sequence[Record]) -> str:
    """How many, and which."""
    names = ", ".join(str(record.seed) for record in records)
    return f"one seed, {names}" if len(records) == 1 else f"{len(records)} seeds: {names}"


def budget_notes(cell: Cell) -> list[str]:
    """How a training differs from the paper's: data, length, schedule."""
    recipe, paper = cell.records[0].recipe, paper_recipe(cell.study)
    notes = length_notes(cell)
    unlike = unlike_settings(cell.records, "train.seed")
    if unlike:
        notes.insert(0, f"seeds that were not trained alike ({unlike})")
    if recipe.schedule.name != paper.schedule.name:
        notes.append(f"{recipe.schedule.name}, rate {recipe.optimiser.lr:g}")
    if recipe.loss.name not in (paper.loss.name, "auto"):
        notes.append(f"{recipe.loss.name} loss")
    if recipe.evaluate.mirror:
        rows = [record.rows_of("test")[-1] for record in cell.records]
        plain = [100 * row["plain_accuracy"] for row in rows if row.get("plain_accuracy") is not None]
        without = f"; {percent(summarise(plain))} without" if len(plain) == len(rows) else ""
        notes.append(f"with mirror images at test{without}")
    return [*notes, *_other_settings(cell)]


def unlike_settings(records: Sequence[Record], *own: str) -> str:
    """Keys in which trainings differ, though they should not; empty if they are alike.

    Args:
        records: of trainings that are put together.
        own: beginnings of keys in which they may differ.
    """
    found = {key for record in records for key in changed_values(records[0].recipe, record.recipe)}
    return ", ".join(sorted(key for key in found if not key.startswith(own)))


def _other_settings(cell: Cell) -> list[str]:
    """What was set by hand: where a recipe is neither the paper's nor that of a short training."""
    recipe = cell.records[0].recipe
    study_data = next(study_data for study_data in candidate_data(cell.study) if study_data.dataset == cell.data)
    budget = Budget(recipe.train.epochs) if recipe.train.steps is None else Budget(steps=recipe.train.steps)
    found = []
    for short in (False, True):
        choice = Choice(budget, limit=recipe.data.limit, short=short)
        expected = run_recipe(cell.experiment, study_data, cell.variant, recipe.train.seed, choice)
        changes = changed_values(expected, recipe)
        found.append({key: value for key, (_, value) in changes.items() if not key.startswith(_TOLD)})
    return [f"{key} = {value}" for key, value in min(found, key=len).items()]


def length_notes(cell: Cell) -> list[str]:
    """What a training had less than the paper's: other data, fewer images, less time."""
    recipe, paper = cell.records[0].recipe, paper_recipe(cell.study)
    notes = []
    if cell.is_stand_in:
        notes.append(f"{cell.data} stands in for {cell.study.data}")
    if recipe.data.limit is not None:
        notes.append(f"at most {recipe.data.limit:,} images of a split")
    share = share_of(recipe, paper)
    if not _WHOLE < share < 1 / _WHOLE:
        notes.append(f"{length(recipe, paper)}: {share_in_words(share)} of {cell.experiment.length_reference}")
    return notes


def length(recipe: Recipe, paper: Recipe) -> str:
    """Of a training, beside the paper's."""
    if paper.train.steps is not None:
        return f"{total_steps(recipe):,} of {paper.train.steps:,} steps"
    return f"{_short(epochs_of(recipe))} of {_short(epochs_of(paper))} epochs"


def _short(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def share_in_words(share: float) -> str:
    """In percent, with two digits that say something."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
