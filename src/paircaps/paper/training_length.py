"""Length of a training in images, steps and epochs, beside the paper's; shorter ones keep the shape of the schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from paircaps.data.registry import require_metadata
from paircaps.training import schedule as training_schedule
from paircaps.training.datasets import tested_name, tested_options
from paircaps.training.recipe import Data, Recipe, options_of
from paircaps.training.schedule import count_steps, count_training_images, images_per_step, stretched


@dataclass(frozen=True)
class Budget:
    """Length of a training: the paper's if neither is given.

    Args:
        epochs: number of epochs.
        steps: number of steps, in place of epochs.
    """

    epochs: int | None = None
    steps: int | None = None


def training_images(data: Data) -> int:
    """Number of images that a recipe trains on, known without loading them.

    Args:
        data: section ``data`` of the recipe.
    """
    return count_training_images(_split_images(data.name, "train", data.options), data)


def count_test_images(data: Data) -> int:
    """Number of images that a recipe tests on, known without loading them.

    Args:
        data: section ``data`` of the recipe.
    """
    images = _split_images(tested_name(data), "test", tested_options(data))
    return images if data.limit is None else min(images, data.limit)


def _split_images(name: str, split: str, options: Mapping[str, object]) -> int:
    """Number of images of a split, by the metadata of its dataset and the options that change it.

    An option with a value that the dataset does not take is ignored here: loading the dataset refuses it.
    """
    options, counts = options_of(dict(options)), require_metadata(name).counts
    length = options.get("length")  # of synthetic images
    if type(length) is int and length > 0:
        return length
    images = counts[split]
    if options.get("extra") is True:  # SVHN's easier digits, added to those of the split
        images += counts.get("extra", 0)
    if options.get("stereo") == "channels":  # smallNORB's pairs as one image each, where they are counted as two
        images //= 2
    return images


def steps_per_epoch(recipe: Recipe) -> int:
    """Number of steps per epoch of a recipe."""
    return training_schedule.steps_per_epoch(training_images(recipe.data), recipe.train.decided_batch_size)


def total_steps(recipe: Recipe) -> int:
    """Number of steps of a whole training."""
    return count_steps(recipe, steps_per_epoch(recipe))


def epochs_of(recipe: Recipe) -> float:
    """Number of epochs of a whole training, by its epochs or its steps, whichever is less."""
    return total_steps(recipe) / steps_per_epoch(recipe)


def batch_of(recipe: Recipe) -> int:
    """Number of images of every step of a recipe."""
    return images_per_step(training_images(recipe.data), recipe.train.decided_batch_size)


def images_shown(recipe: Recipe) -> int:
    """Number of images shown in a whole training, each counted as often as it is shown."""
    return total_steps(recipe) * batch_of(recipe)


def share_of(recipe: Recipe, paper: Recipe) -> float:
    """Length of a training as a share of the paper's, in images shown; the paper held none back for validation.

    Args:
        recipe: of the training.
        paper: recipe with the paper's length.
    """
    return images_shown(recipe) / images_shown(replace(paper, data=replace(paper.data, validation=0.0)))


def shortened(recipe: Recipe, budget: Budget) -> Recipe:
    """A recipe with another length; warm-up, drops and halvings come after the same share of the training.

    Args:
        recipe: recipe with the paper's length.
        budget: the new length.
    """
    if budget == Budget():
        return recipe
    if budget.epochs is not None:
        train = replace(recipe.train, epochs=budget.epochs, steps=None)
    else:
        train = replace(recipe.train, epochs=None, steps=budget.steps)
    changed = replace(recipe, train=train)
    return replace(changed, schedule=stretched(recipe.schedule, epochs_of(changed) / epochs_of(recipe)))
