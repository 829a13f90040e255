"""Status of a training's folder: finished, to be continued, or damaged and to be trained again.

Files of a damaged training are moved aside, never removed.
"""

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
"""Variant whose reconstructions a report shows."""


def draws_pictures(run: PlannedRun) -> bool:
    """True if a report needs the weights of this training, to draw reconstructions."""
    return bool(run.experiment.sheet) and run.variant.name == PICTURED_VARIANT and run.seed == 0


def begun_recipe(path: Path) -> Recipe | None:
    """Recipe of the training that was begun in a folder; None if there is none or it cannot be read."""
    folder = RunFolder(path)
    try:
        return folder.read_recipe() if folder.config.exists() and folder.is_begun() else None
    except TrainingError:
        return None


def read_status(folder: RunFolder, needs_weights: bool) -> tuple[Record | None, str]:
    """Read the result of a training, or find out why there is none.

    Args:
        folder: folder of the training, which the caller has locked.
        needs_weights: whether its weights must be readable too.

    Returns:
        The finished training or None, and what is damaged; that is empty if the training is finished, can begin, or
        can be continued.
    """
    try:
        record = read_record(folder.path)
    except TrainingError:
        return None, "a file of it is damaged"
    if record is not None:
        if not needs_weights or _weights_load(folder):
            return record, ""
        return None, "" if checkpoint_steps(folder.checkpoints) else "its weights are gone or damaged"
    if not folder.is_begun():
        return None, ""
    if begun_recipe(folder.path) is None:
        return None, f"{folder.config.name} is gone or damaged"
    if folder.model.exists():
        return None, f"{folder.metrics.name} is gone or cut short"
    return None, _checkpoint_problem(folder)


def _checkpoint_problem(folder: RunFolder) -> str:
    """What an unfinished training lacks, a checkpoint or the rows written before it; empty if it can be continued."""
    rows = folder.metrics.stat().st_size if folder.metrics.exists() else 0
    try:
        found, _ = newest_checkpoint(folder.checkpoints)
    except CheckpointError:
        return "its checkpoints are damaged"
    if found is None:
        return "its checkpoints are gone" if rows else ""
    return f"rows of {folder.metrics.name} are gone" if rows < found.facts["counters"]["metrics_bytes"] else ""


def _weights_load(folder: RunFolder) -> bool:
    """True if the network of a finished training can be loaded."""
    try:
        load(folder.path)
    except ModelFileError:
        return False
    return True


def move_aside(folder: RunFolder) -> Path:
    """Move all files of a training into a new folder beside its own, and return that folder."""
    number = 1
    while (place := folder.path.with_name(f"{folder.path.name}.aside-{number}")).exists():
        number += 1
    place.mkdir()
    for path in folder.everything():
        if path.exists():
            path.rename(place / path.name)
    return place
