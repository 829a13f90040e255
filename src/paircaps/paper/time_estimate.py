"""How long a training would take on this machine: a few steps on noise, and arithmetic."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from paircaps.bench.train_step import train_step
from paircaps.data.loader import Loader
from paircaps.data.metadata import METADATA
from paircaps.paper.budget import steps_per_epoch, total_steps
from paircaps.paper.shapes import images_like
from paircaps.training.assemble import build_objective, choose_device
from paircaps.training.datasets import Datasets, tested_name
from paircaps.training.recipe import Recipe

_IMAGES = 32
"""Of a timed step; that of a whole batch takes longer in proportion."""

_FORWARD = 1 / 3
"""Of the time of a training step: what an image takes that is only looked at."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a training on this machine, by a guess that is good to a factor of about 1.5.

    Args:
        growing: that are in proportion to its length.
        fixed: of the test at its end, and of one validation.
    """

    growing: float
    fixed: float

    @property
    def seconds(self) -> float:
        """All of them."""
        return self.growing + self.fixed


def pace_of(recipe: Recipe) -> Pace:
    """How long a training would take."""
    batch, test = recipe.train.batch_size, METADATA[tested_name(recipe.data)].counts["test"]
    if recipe.data.limit is not None:
        test = min(test, recipe.data.limit)
    steps, an_epoch = total_steps(recipe), steps_per_epoch(recipe)
    views = 1 + recipe.evaluate.mirror
    held = recipe.data.validation / (1 - recipe.data.validation) * an_epoch
    settling = min(recipe.evaluate.settle, an_epoch)
    look = _FORWARD * (views * held + settling)
    step = seconds_of_step(recipe)
    return Pace(step * (steps + look * steps / an_epoch), step * (_FORWARD * (views * test / batch + settling) + look))


def seconds_of_step(recipe: Recipe) -> float:
    """Seconds of one training step, from one on fewer images."""
    dataset = images_like(recipe, _IMAGES)
    few = replace(recipe, train=replace(recipe.train, batch_size=_IMAGES))
    device = choose_device(recipe.run)
    objective = build_objective(few, Datasets(dataset, None, dataset), device)
    step = train_step(few, objective, Loader(dataset, _IMAGES).batch(0, 0))
    step()  # the first one allocates
    return min(_timed(step), _timed(step)) * recipe.train.batch_size / _IMAGES


def _timed(step: Callable[[], None]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began
