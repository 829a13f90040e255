"""Cells of a report's table: numbers of the paper, and results with notes on how their trainings differ from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paircaps._utils.summary import summarise
from paircaps.paper.experiments import PaperNumber
from paircaps.paper.plan import Choice, candidate_data, full_recipe, run_recipe
from paircaps.paper.records import Cell, Record
from paircaps.paper.report.document import TableCell, empty_cell
from paircaps.paper.training_length import Budget, epochs_of, share_of, total_steps
from paircaps.training.recipe import Recipe
from paircaps.training.recipe_io import changed_values

_LENGTH_KEYS = ("train.epochs", "train.steps")
"""Beginnings of the keys of a training's length, which has a note of its own."""

_FULL_LENGTH = 0.995
"""Share of the paper's length from which a training counts as full length."""

_VIEWS_IN_WORDS = {
    "flip": "with mirror images",
    "shift": "with images moved by a pixel",
    "flip-shift": "with mirror images and images moved by a pixel",
}
"""How results with each value of ``evaluate.views`` say so."""


def paper_cell(number: PaperNumber | None, is_ours: bool, decimals: int = 2) -> TableCell:
    """Cell with a number of the paper.

    Args:
        number: what the paper prints; None if it prints nothing.
        is_ours: whether the row is trained here.
        decimals: number of decimals that the paper prints.
    """
    if number is None:
        return empty_cell("not in the paper" if is_ours else "not reported")
    deviation = "" if number.deviation is None else f" ± {number.deviation:.{decimals}f}"
    return TableCell(f"{number.mean:.{decimals}f}{deviation}")


def result_cell(cell: Cell, measure: str) -> TableCell:
    """Cell with the result of a network, with notes on its trainings.

    Args:
        cell: results of the network.
        measure: ``test`` or ``train`` accuracy.
    """
    if not cell.records:
        return empty_cell(cell.reason)
    summary = summarise([100 * record.accuracy(measure) for record in cell.records])
    notes = [*budget_notes(cell), *([cell.reason] if cell.reason else [])]
    if measure == "train":
        notes.insert(0, "of the last epoch, while it learned")
    return TableCell(str(summary), (seeds_in_words(cell.records), *notes))


def seeds_in_words(records: Sequence[Record]) -> str:
    """Number of seeds, and which ones."""
    names = ", ".join(str(record.seed) for record in records)
    return f"one seed, {names}" if len(records) == 1 else f"{len(records)} seeds: {names}"


def budget_notes(cell: Cell) -> list[str]:
    """Notes on how trainings differ from the paper's: data, length, schedule, loss, evaluation, other settings."""
    recipe, paper = cell.records[0].recipe, full_recipe(cell.study, cell.variant)
    notes = length_notes(cell)
    unlike = unlike_settings(cell.records, "train.seed")
    if unlike:
        notes.insert(0, f"seeds that were not trained alike ({unlike})")
    if recipe.schedule.name != paper.schedule.name:
        notes.append(f"{recipe.schedule.name}, rate {recipe.optimiser.lr:g}")
    if recipe.loss.name not in (paper.loss.name, "auto"):
        notes.append(f"{recipe.loss.name} loss")
    if recipe.evaluate.views != "none":
        rows = [record.rows_of("test")[-1] for record in cell.records]
        plain = [100 * row["plain_accuracy"] for row in rows if row.get("plain_accuracy") is not None]
        without = f"; {summarise(plain)} without" if len(plain) == len(rows) else ""
        notes.append(f"{_VIEWS_IN_WORDS[recipe.evaluate.views]} at test{without}")
    return [*notes, *_other_settings(cell)]


def unlike_settings(records: Sequence[Record], *own: str) -> str:
    """Keys in which trainings differ that should be alike, separated by commas; empty if they are alike.

    Args:
        records: trainings whose results are put together.
        own: beginnings of the keys in which they may differ.
    """
    found = {key for record in records for key in changed_values(records[0].recipe, record.recipe)}
    return ", ".join(sorted(key for key in found if not key.startswith(own)))


def _other_settings(cell: Cell) -> list[str]:
    """Settings that ``--set`` changed: differences from the recipe with or without ``--short``, whichever has fewer."""
    recipe = cell.records[0].recipe
    study_data = next(study_data for study_data in candidate_data(cell.study) if study_data.dataset == cell.data)
    budget = Budget(recipe.train.decided_epochs) if recipe.train.steps is None else Budget(steps=recipe.train.steps)
    found = []
    for short in (False, True):
        choice = Choice(budget, limit=recipe.data.limit, short=short)
        expected = run_recipe(cell.experiment, study_data, cell.variant, recipe.train.seed, choice)
        expected = replace(expected, train=replace(expected.train, precision="fp32"))  # as in the paper
        changes = changed_values(expected, recipe)
        found.append({key: value for key, (_, value) in changes.items() if not key.startswith(_LENGTH_KEYS)})
    return [f"{key} = {value}" for key, value in min(found, key=len).items()]


def length_notes(cell: Cell) -> list[str]:
    """Notes on what trainings had less than the paper's: another dataset, fewer images, a shorter length."""
    recipe, paper = cell.records[0].recipe, full_recipe(cell.study, cell.variant)
    notes = []
    if cell.is_stand_in:
        notes.append(f"{cell.data} stands in for {cell.study.data}")
    if recipe.data.limit is not None:
        notes.append(f"at most {recipe.data.limit:,} images of a split")
    share = share_of(recipe, paper)
    if not _FULL_LENGTH < share < 1 / _FULL_LENGTH:
        reference = "its own recipe's" if cell.variant.is_rival else cell.experiment.length_reference
        notes.append(f"{length_in_words(recipe, paper)}: {share_in_words(share)} of {reference}")
    return notes


def length_in_words(recipe: Recipe, paper: Recipe) -> str:
    """Length of a training and that of the paper's, in steps or epochs as the paper counts."""
    if paper.train.steps is not None:
        return f"{total_steps(recipe):,} of {paper.train.steps:,} steps"
    return f"{_two_decimals(epochs_of(recipe))} of {_two_decimals(epochs_of(paper))} epochs"


def _two_decimals(number: float) -> str:
    """A number with at most two decimals."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def share_in_words(share: float) -> str:
    """A share in percent, with two significant digits."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
