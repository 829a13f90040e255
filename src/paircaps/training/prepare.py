"""Prepare a folder for a run: that of the same recipe, which goes on, of a longer one, or a new one."""

from __future__ import annotations

from paircaps._utils.files import write_whole
from paircaps._utils.words import counted
from paircaps.errors import CheckpointError, TrainingError
from paircaps.losses import follows_progress
from paircaps.model_files import WEIGHTS as MODEL_WEIGHTS
from paircaps.training.checkpoints import read_checkpoint
from paircaps.training.recipe import Recipe
from paircaps.training.recipe_io import differences, differing_values, to_toml
from paircaps.training.run_folder import (
    RunFolder,
    checkpoint_path,
    checkpoint_steps,
    clear,
    remove_checkpoints,
    remove_partial,
)
from paircaps.training.schedule import count_steps, has_same_past, steps_per_epoch
from paircaps.training.state import Counters

_LENGTH = {"train.epochs", "train.steps"}


def prepare(folder: RunFolder, recipe: Recipe, fresh: bool, extend: bool = False) -> None:
    """Check that the folder holds a run of this recipe or none, and write the recipe to it.

    Args:
        folder: locked folder of the run.
        recipe: recipe of the run.
        fresh: True to remove a run that is there and start over.
        extend: True to make the run that is there as long as the recipe says.

    Raises:
        TrainingError: if the folder holds a run of another recipe (the message shows the differences), files that
            were not written by a training, which are never removed, or a run that cannot be extended.
    """
    remove_partial(folder)
    begun = folder.begun_recipe()
    if extend and begun is None:
        raise TrainingError(f"{folder.path}: --extend makes a run longer, and none has begun here")
    if begun is not None and not fresh:
        if differences(begun, recipe):
            _extend_or_refuse(folder, begun, recipe, extend)
        return
    if begun is not None:
        clear(folder)
    strangers = [path.name for path in folder.everything() if path.exists() and path != folder.config]
    if strangers:
        raise TrainingError(
            f"{folder.path}: holds {', '.join(strangers)}, but not of a run that could go on or be removed. "
            "Take another --out, or remove them yourself"
        )
    write_whole(folder.config, to_toml(recipe).encode())


def _extend_or_refuse(folder: RunFolder, begun: Recipe, recipe: Recipe, extend: bool) -> None:
    """Extend a run to the length of another recipe, or raise an error that says what can be done instead."""
    found = [f"  {line}" for line in differences(begun, recipe)]
    other = f"{folder.path}: holds a run of another recipe. --fresh starts over, or take another --out. It differs in"
    if not differing_values(begun, recipe).keys() <= _LENGTH:
        only = ["--extend changes the length alone"] if extend else []
        raise TrainingError(other, *found, *only)
    try:
        step = shared_checkpoint(folder, begun, recipe)
    except TrainingError as error:
        raise TrainingError(other, *found, *error.lines_between("It cannot be extended: ")) from None
    if not extend:
        raise TrainingError(
            f"{folder.path}: holds a run of another length. --extend goes on from its step {step:,} to the new end, as "
            "if it had been so long from the start; --fresh starts over, or take another --out. It differs in",
            *found,
        )
    # the recipe comes last: a process that is killed before leaves a run of the old length, which can go on
    for path in (folder.model, folder.path / MODEL_WEIGHTS):
        path.unlink(missing_ok=True)
    kept = [saved for saved in checkpoint_steps(folder.checkpoints) if saved <= step]
    remove_checkpoints(folder.checkpoints, kept)
    write_whole(folder.config, to_toml(recipe).encode())


def shared_checkpoint(folder: RunFolder, begun: Recipe, recipe: Recipe) -> int:
    """Step of the newest checkpoint of a run that a longer run would have had too, bit for bit.

    Args:
        folder: folder of the run.
        begun: recipe of the run.
        recipe: the same recipe with another length.

    Raises:
        TrainingError: if there is none; the message says why.
    """
    reason = "it has no checkpoint to go on from"
    saved_steps = checkpoint_steps(folder.checkpoints)
    for saved in (step for step in saved_steps if step):
        try:
            facts = read_checkpoint(checkpoint_path(folder.checkpoints, saved)).facts
        except CheckpointError as error:
            reason = str(error)
            continue
        counters = Counters.from_dict(facts["counters"])
        per_epoch = steps_per_epoch(facts["data"]["train"], recipe.train.decided_batch_size)
        old, new = count_steps(begun, per_epoch), count_steps(recipe, per_epoch)
        if new <= old:
            raise TrainingError(f"it has {counted(old, 'step')}, and {new:,} are no more than that")
        # a validation at the end of a run, within an epoch or between two validations, is not in a longer run
        at_end = saved == old and saved % (per_epoch * recipe.evaluate.every) != 0
        loss = facts.get("loss", "")  # earlier checkpoints have none: no loss changed over a training
        if follows_progress(loss) or not has_same_past(recipe, saved, old, new, per_epoch):
            reason = (
                f"in a run of {counted(new, 'step')} the first {saved:,} would have been others, because "
                f"{_depends_on_length(recipe, loss)} by the length of the whole run. A longer run is a new one"
            )
        elif at_end:
            reason = f"it was validated at its end, step {saved:,}, where a longer run is not"
        elif counters.best_step not in (-1, *saved_steps):
            reason = f"the checkpoint of its best validation before step {saved:,} is gone"
        else:
            return saved
    raise TrainingError(reason)


def _depends_on_length(recipe: Recipe, loss: str) -> str:
    if follows_progress(loss):
        return f"the {loss} loss goes"
    if recipe.train.sizes:
        return f"schedule {recipe.schedule.name} and train.sizes go"
    return f"the learning rate of schedule {recipe.schedule.name} goes"
