"""Length of a run and its learning rate, as pure functions: a resume has nothing of them to restore."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from paircaps.training.recipe import Data, Recipe, Schedule

ONE_CYCLE_START = 1 / 25
"""Share of the highest rate that one-cycle starts at."""


# --- length ----------------------------------------------------------------------------------------------------------


def count_held_back(images: int, share: float) -> int:
    """Number of images held back for validation.

    Args:
        images: images of the training split, within its limit.
        share: share to hold back, ``data.validation`` of the recipe.
    """
    return round(images * share)


def count_training_images(split_images: int, settings: Data) -> int:
    """Number of images that a recipe trains on: those within its limit, without those held back for validation.

    Args:
        split_images: images of the whole training split.
        settings: section ``data`` of the recipe.
    """
    images = split_images if settings.limit is None else min(split_images, settings.limit)
    return images - count_held_back(images, settings.validation)


def steps_per_epoch(images: int, batch_size: int) -> int:
    """Number of batches per epoch: an incomplete last batch is left out, unless it is the only one.

    Args:
        images: images that the run trains on.
        batch_size: images per step, of all processes together.
    """
    return max(1, images // batch_size)


def images_per_step(images: int, batch_size: int) -> int:
    """Number of images of every step: a full batch, or all images if they are fewer."""
    return min(images, batch_size)


def count_steps(recipe: Recipe, steps_per_epoch: int) -> int:
    """Number of steps of a whole run: by ``train.epochs`` or ``train.steps``, whichever is less."""
    epochs, steps = recipe.train.decided_epochs, recipe.train.steps
    return int(min(math.inf if epochs is None else epochs * steps_per_epoch, math.inf if steps is None else steps))


def side_at(sizes: Sequence[int], step: int, steps: int) -> int | None:
    """Side to which the images of a step are resized; None for their own.

    Args:
        sizes: ``train.sizes`` of the recipe, each for an equal share of the run.
        step: number of the step, from 0.
        steps: steps of the whole run.
    """
    return sizes[min(step * len(sizes) // steps, len(sizes) - 1)] if sizes else None


# --- learning rate ---------------------------------------------------------------------------------------------------


def rate(schedule: Schedule, step: int, steps: int, steps_per_epoch: int) -> float:
    """Learning rate of a step, as a share of the highest rate.

    Args:
        schedule: section ``schedule`` of the recipe.
        step: number of the step, from 0.
        steps: steps of the whole run.
        steps_per_epoch: steps per epoch.
    """
    if schedule.name == "one-cycle":
        return _one_cycle(schedule, step, steps)
    warm_up = schedule.warm_up * steps_per_epoch  # in steps
    if step < warm_up:
        return (step + 1) / (math.floor(warm_up) + 1)
    epoch = step / steps_per_epoch
    if schedule.name == "drops":
        return schedule.factor ** sum(epoch >= drop for drop in schedule.drops)
    if schedule.name == "halving":
        return schedule.factor ** math.floor(epoch / schedule.every)
    if schedule.name == "cosine":
        return _cosine(1, schedule.final, (step - warm_up) / max(1, steps - warm_up))
    if schedule.name == "linear":
        return _line(1, schedule.final, (step - warm_up) / max(1, steps - warm_up))
    if schedule.name == "trapezoid":
        fall = max(1, schedule.cool_down * steps)  # in steps
        return _line(1, schedule.final, max(0, step - (steps - fall)) / fall)
    return 1.0


def has_same_past(recipe: Recipe, step: int, steps: int, other_steps: int, steps_per_epoch: int) -> bool:
    """Whether the first steps of a run are the same in a run of another length: their rates and sizes of images.

    Args:
        recipe: recipe of both runs.
        step: number of first steps.
        steps: steps of the whole run.
        other_steps: steps of the run of another length.
        steps_per_epoch: steps per epoch of both.
    """
    schedule, sizes = recipe.schedule, recipe.train.sizes
    return all(
        rate(schedule, past, steps, steps_per_epoch) == rate(schedule, past, other_steps, steps_per_epoch)
        and side_at(sizes, past, steps) == side_at(sizes, past, other_steps)
        for past in range(step)
    )


def stretched(schedule: Schedule, factor: float) -> Schedule:
    """A schedule stretched over a training of another length.

    Args:
        schedule: section ``schedule`` of a recipe; cosine, linear and one-cycle have no epochs in them.
        factor: new length divided by the old one.
    """
    if schedule.name == "drops":
        schedule = replace(schedule, drops=tuple(drop * factor for drop in schedule.drops))
    if schedule.name == "halving":
        schedule = replace(schedule, every=max(1e-6, schedule.every * factor))
    if schedule.name != "one-cycle":
        schedule = replace(schedule, warm_up=schedule.warm_up * factor)
    return schedule


def with_length_of(schedule: Schedule, begun: Schedule) -> Schedule:
    """A schedule with the keys that :func:`stretched` changes taken from another one of the same name.

    Args:
        schedule: section ``schedule`` of a recipe.
        begun: that of the run which it continues; if its name differs, nothing is taken from it.
    """
    if begun.name != schedule.name:
        return schedule
    schedule = replace(schedule, drops=begun.drops, every=begun.every)
    return schedule if schedule.name == "one-cycle" else replace(schedule, warm_up=begun.warm_up)


def _one_cycle(schedule: Schedule, step: int, steps: int) -> float:
    rise = schedule.warm_up * steps
    if step < rise:
        return _cosine(ONE_CYCLE_START, 1, step / rise)
    return _cosine(1, schedule.final, (step - rise) / max(1, steps - rise))


def _cosine(start: float, end: float, progress: float) -> float:
    """Value between start and end along half a cosine; progress is 0 at the start and 1 at the end."""
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def _line(start: float, end: float, progress: float) -> float:
    """Value between start and end along a line; progress is 0 at the start and 1 at the end."""
    return start + (end - start) * progress
