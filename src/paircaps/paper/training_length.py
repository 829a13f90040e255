"""How long a training is, beside the paper's: a shorter one keeps the shape of its schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paircaps.data.metadata import METADATA
from paircaps.training import schedule as training_schedule
from paircaps.training.recipe import Data, Recipe, Schedule
from paircaps.training.schedule import count_steps, count_training_images, images_per_step


@dataclass(frozen=True)
class Budget:
    """How long a training is: the paper's length, or so many epochs or steps.

    Args:
        epochs: of every training.
        steps: exactly so many.
    """

    epochs: int | None = None
    steps: int | None = None


def training_images(data: Data) -> int:
    """Images that a recipe trains on: those of the split, within its limit, without those held back."""
    return count_training_images(METADATA[data.name].counts["train"], data)


def steps_per_epoch(recipe: Recipe) -> int:
    """Batches of an epoch: a last one that is not full is left out, unless it is the only one."""
    return training_schedule.steps_per_epoch(training_images(recipe.data), recipe.train.batch_size)


def epochs_of(recipe: Recipe) -> float:
    """How often a recipe sees its training images, by its epochs or its steps, whichever is less."""
    return total_steps(recipe) / steps_per_epoch(recipe)


def total_steps(recipe: Recipe) -> int:
    """Batches of a whole training."""
    return count_steps(recipe, steps_per_epoch(recipe))


def images_shown(recipe: Recipe) -> int:
    """Images that a whole training sees, each as often as it comes."""
    return total_steps(recipe) * images_per_step(training_images(recipe.data), recipe.train.batch_size)


def share_of(recipe: Recipe, paper: Recipe) -> float:
    """How much of the paper's training a recipe is, in images that it sees; the paper's held none back."""
    return images_shown(recipe) / images_shown(replace(paper, data=replace(paper.data, validation=0.0)))


def shortened(recipe: Recipe, budget: Budget) -> Recipe:
    """A recipe of another length; warm-up, drops and halvings come after the same part of it.

    Args:
        recipe: of the paper's length.
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


def stretched(schedule: Schedule, factor: float) -> Schedule:
    """The same schedule over a training that is so many times as long; one-cycle and cosine know no epochs."""
    if schedule.name == "drops":
        schedule = replace(schedule, drops=tuple(drop * factor for drop in schedule.drops))
    if schedule.name == "halving":
        schedule = replace(schedule, every=max(1e-6, schedule.every * factor))
    if schedule.name != "one-cycle":
        schedule = replace(schedule, warm_up=schedule.warm_up * factor)
    return schedule
