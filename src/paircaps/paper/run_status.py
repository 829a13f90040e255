"""What is left of a training, and whether it can count, go on, or has to be made again. Nothing is ever removed."""

from __future__ import annotations

from pathlib import Path

from paircaps.errors import CheckpointError, ModelFileError, TrainingError
from paircaps.model_files import load
from paircaps.paper.plan import PlannedRun
from paircaps.paper.records import Record, read_record
from paircaps.training.checkpoints import newest_checkpoint
from paircaps.training.recipe import Recipe
from paircaps.training.run_folder import RunFolder, checkpoint_steps

PICTURED_VARIANT = "fm"
"""The variant whose pictures a report shows."""


def draws_pictures(run: PlannedRun) -> bool:
    """Whether a report needs the weights of this training."""
    return bool(run.experiment.sheet) and run.variant.name == PICTURED_VARIANT and run.seed == 0


def begun_recipe(path: Path) -> Recipe | None:
    """The recipe of a training that was begun in a folder; None if none was, or it cannot be read."""
    folder = RunFolder(path)
    try:
        return folder.read_recipe() if folder.config.exists() and folder.is_begun() else None
    except TrainingError:
        return None


def examine(folder: RunFolder, with_weights: bool) -> tuple[Record | None, str]:
    """The result of a training if it is there; else what is wrong with it, empty if it may begin or go on.

    Args:
        folder: of the training, locked.
        with_weights: whether its weights must be there too.
    """
    try:
        record = read_record(folder.path)
    except TrainingError:
        return None, "a file of it is damaged"
    if record is not None:
        if not with_weights or _loads(folder):
            return record, ""
        return None, "" if checkpoint_steps(folder.checkpoints) else "its weights are gone or damaged"
    if not folder.is_begun():
        return None, ""
    if begun_recipe(folder.path) is None:
        return None, f"{folder.config.name} is gone or damaged"
    if folder.model.exists():
        return None, f"{folder.metrics.name} is gone or cut short"
    return None, _torn(folder)


def _torn(folder: RunFolder) -> str:
    """What of an unfinished training is gone: it goes on from a checkpoint and the rows that were there by then."""
    rows = folder.metrics.stat().st_size if folder.metrics.exists() else 0
    try:
        found, _ = newest_checkpoint(folder.checkpoints)
    except CheckpointError:
        return "its checkpoints are damaged"
    if found is None:
        return "its checkpoints are gone" if rows else ""
    return f"rows of {folder.metrics.name} are gone" if rows < found.facts["counters"]["metrics_bytes"] else ""


def _loads(folder: RunFolder) -> bool:
    try:
        load(folder.path)
    except ModelFileError:
        return False
    return True


def set_aside(folder: RunFolder) -> Path:
    """Move everything of a training out of its way; where to."""
    number = 1
    while (place := folder.path.with_name(f"{folder.path.name}.aside-{number}")).exists():
        number += 1
    place.mkdir()
    for path in folder.everything():
        if path.exists():
            path.rename(place / path.name)
    return place
