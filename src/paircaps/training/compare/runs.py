"""A run as a comparison sees it, read from its folder, finished or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paircaps.errors import TrainingError
from paircaps.model_files import load_without_weights, read_metadata
from paircaps.models import count_parameters
from paircaps.training.datasets import tested_name
from paircaps.training.recipe import Recipe
from paircaps.training.run_folder import RunFolder, checkpoint_steps, existing_folder
from paircaps.training.run_rows import (
    Row,
    TrainingSeconds,
    read_rows,
    read_timing,
    require_numbers,
    training_seconds,
)
from paircaps.training.schedule import count_steps

_REQUIRED_NUMBERS = {
    "step": ("step", "epoch", "loss", "accuracy"),
    "epoch": ("step", "epoch", "train_loss", "train_accuracy"),
    "test": ("step", "accuracy", "loss"),
}
_OPTIONAL_NUMBERS = ("validation_loss", "validation_accuracy", "validation_mean_iou", "plain_accuracy", "mean_iou")
"""Numbers that a row of metrics must have, by its kind, and numbers that any row may have."""


@dataclass(frozen=True)
class ComparedRun:
    """A run. Accuracies and IoUs are in 0..1.

    Args:
        name: short name, unique among the runs that are compared.
        folder: where it is.
        recipe: its recipe.
        data: dataset that it was or will be tested on.
        note: note on the files of that dataset, such as that it is a stand-in; None while that is not known.
        loss_name: kind of its loss; None while ``loss.name`` of the recipe leaves it to the routing.
        is_finished: whether it is finished and tested.
        has_failed: whether a step that was not finite stopped it.
        parameters: number of trained weights of the model, without its decoder; None while it is not finished.
        accuracy: of the test; None while it is not finished.
        plain_accuracy: of the test without other views of the images; None where none were averaged.
        mean_iou: mean IoU of the test, of a network with masks; None of others.
        loss: of the test.
        validation_accuracy: of the weights that were tested; of the last validation while it is not finished; None
            without any.
        validation_loss: of the same weights.
        step: number of steps done.
        steps: number of steps of the whole run; None while that is not known.
        seconds: time of the training; None if it left no times.
        threads: number of threads; None if it is not known.
        commit: commit of the code at each start, each once.
        rows: rows of its metrics.
    """

    name: str
    folder: Path
    recipe: Recipe
    data: str
    note: str | None
    loss_name: str | None
    is_finished: bool
    has_failed: bool
    parameters: int | None
    accuracy: float | None
    plain_accuracy: float | None
    mean_iou: float | None
    loss: float | None
    validation_accuracy: float | None
    validation_loss: float | None
    step: int
    steps: int | None
    seconds: TrainingSeconds | None
    threads: int | None
    commit: str
    rows: tuple[Row, ...]

    @property
    def seed(self) -> int:
        """Seed of the training."""
        return self.recipe.train.seed

    def rows_of(self, kind: str) -> list[Row]:
        """Rows of one kind: ``step``, ``epoch`` or ``test``."""
        return [row for row in self.rows if row["kind"] == kind]


def read_run(name: str, path: Path) -> ComparedRun:
    """Read a run.

    Args:
        name: name of the run.
        path: its folder.

    Raises:
        PaircapsError: if one of its files is damaged; the message says which.
    """
    folder = existing_folder(path)
    recipe, is_finished = folder.read_recipe(), folder.model.exists()
    rows = _read_metrics(folder, is_finished)
    timing = read_timing(folder.timing, is_growing=not is_finished) if folder.timing.exists() else []
    trained = _read_trained(folder) if is_finished else {}
    starts = [row["machine"] for row in timing if isinstance(row.get("machine"), dict)]
    machine = starts[-1] if starts else trained.get("machine", {})

    # what was reached: by the test, and by the validation of the weights that were tested, or else by the last one
    test = next((row for row in reversed(rows) if row["kind"] == "test"), {}) if is_finished else {}
    validated = [row for row in rows if row["kind"] == "epoch" and row.get("validation_accuracy") is not None]
    chosen = [row for row in validated if row["step"] == test.get("weights_of_step")] or validated
    validation = chosen[-1] if chosen else {}

    # how far it came
    step = max([row["step"] for row in rows] + checkpoint_steps(folder.checkpoints)[:1], default=0)
    return ComparedRun(
        name=name,
        folder=path,
        recipe=recipe,
        data=str(trained.get("tested_on") or _data_in_words(recipe)),
        note=str(trained.get("note") or "") if is_finished else None,
        loss_name=_loss_name(recipe, trained),
        is_finished=is_finished,
        has_failed=not is_finished and folder.failure.exists(),
        parameters=count_parameters(load_without_weights(path).model) if is_finished else None,
        accuracy=test.get("accuracy"),
        plain_accuracy=test.get("plain_accuracy"),
        mean_iou=test.get("mean_iou"),
        loss=test.get("loss"),
        validation_accuracy=validation.get("validation_accuracy"),
        validation_loss=validation.get("validation_loss"),
        step=step,
        steps=step if is_finished else _planned_steps(recipe, rows),
        seconds=training_seconds(timing),
        threads=machine.get("threads"),
        commit=" and ".join(dict.fromkeys(str(start["commit"]) for start in starts or [machine] if "commit" in start)),
        rows=tuple(rows),
    )


def _read_metrics(folder: RunFolder, is_finished: bool) -> list[Row]:
    """Rows of metrics, whose numbers were checked; those of a finished run have a test among them."""
    if not folder.metrics.exists() and not is_finished:
        return []
    rows = read_rows(folder.metrics, is_growing=not is_finished)
    for row in rows:
        try:
            require_numbers(row, _REQUIRED_NUMBERS, _OPTIONAL_NUMBERS)
        except ValueError as error:
            raise TrainingError(f"{folder.metrics}: is damaged: a row of kind {row['kind']} has {error}") from None
    if is_finished and not any(row["kind"] == "test" for row in rows):
        raise TrainingError(
            f"{folder.metrics}: is damaged: it has no row of the test, although {folder.model.name} is there"
        )
    return rows


def _read_trained(folder: RunFolder) -> dict[str, Any]:
    """Section ``trained`` of ``model.json``."""
    trained = read_metadata(folder.path).get("trained")
    if isinstance(trained, dict) and all(isinstance(trained.get(part, {}), dict) for part in ("machine", "loss")):
        return trained
    raise TrainingError(f"{folder.model}: is damaged: it does not say how the network was trained")


def _data_in_words(recipe: Recipe) -> str:
    """Dataset that an unfinished run will be tested on; a folder of pictures is called by its name, as in a result."""
    name = tested_name(recipe.data)
    return Path(name).name if "/" in name else name


def _loss_name(recipe: Recipe, trained: dict[str, Any]) -> str | None:
    """Kind of the loss; None if it cannot be told."""
    name = trained.get("loss", {}).get("name") or recipe.loss.name
    return None if name == "auto" else str(name)


def _planned_steps(recipe: Recipe, rows: list[Row]) -> int | None:
    """Steps of the whole run, which the recipe may give in epochs: rows that have both tell how long one is."""
    if recipe.train.epochs is None:
        return recipe.train.steps
    both = [row for row in rows if row.get("epoch")]
    return count_steps(recipe, round(both[-1]["step"] / both[-1]["epoch"])) if both else None
