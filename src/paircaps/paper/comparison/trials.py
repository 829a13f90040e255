"""One trial: a training by its recipe, its test, and how well the poses of its network can be read."""

from __future__ import annotations

import shutil
from pathlib import Path

from paircaps._utils.machine import describe_machine
from paircaps.data.synthetic.poses import POSE
from paircaps.errors import TrainingError
from paircaps.explain.equivariance import find_poses, read_out
from paircaps.explain.warps import upright_images, warp_randomly
from paircaps.model_files import load
from paircaps.paper.comparison.design import TASKS, Trial
from paircaps.paper.comparison.records import TrialRecord, failed
from paircaps.training.datasets import own_dataset
from paircaps.training.loop import train

UNFINISHED = "unfinished"
"""Name of the folder of trainings that go on, in the folder of the comparison."""

IMAGES = 2000
"""Warped images that a linear map from poses to true poses is fitted on, and as many that it is tested on."""


def run_trial(trial: Trial, folder: Path, *, quiet: bool) -> TrialRecord:
    """Train and test; a training that was stopped goes on. Its folder is removed when it is done.

    Args:
        trial: what to train.
        folder: folder of the comparison.
        quiet: whether to show no progress.

    Returns:
        what was reached, or the reason why nothing was: a loss that was not finite.
    """
    place = folder / UNFINISHED / trial.name
    try:
        trained = train(trial.recipe, place, quiet=quiet).trained
    except TrainingError as error:
        if not (place / "failure").is_dir():
            raise
        record = failed(trial, str(error).splitlines()[0].replace(str(place), trial.name))
    else:
        record = TrialRecord(
            trial,
            trial.parameters,
            trained["validation_accuracy"],
            trained["test_accuracy"],
            trained["test_loss"],
            pose_r2(place) if TASKS[trial.task].has_poses else None,
            "",
            dict(describe_machine()),
        )
    record.save(folder)
    shutil.rmtree(place, ignore_errors=True)
    return record


def pose_r2(place: Path) -> dict[str, float]:
    """R² of a linear map from the right capsule's pose to the true pose, by name, on warped images.

    Args:
        place: folder of a finished training, whose training images the map is fitted on and whose test images it is
            tested on.
    """
    network = load(place)
    fit, test = (upright_images(own_dataset(place, split, None, {})) for split in ("train", "test"))
    fitted = find_poses(network, warp_randomly(fit, IMAGES, 0, "equivariance fit"))
    tested = find_poses(network, warp_randomly(test, IMAGES, 0, "equivariance test"))
    return dict(zip(POSE, read_out(fitted, tested).tolist(), strict=True))
