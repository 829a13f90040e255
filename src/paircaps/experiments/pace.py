"""How long a training would take on this machine: a few steps on noise, and arithmetic."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from paircaps.bench.bare import bare_step
from paircaps.data.cards import CARDS
from paircaps.data.loader import Loader
from paircaps.experiments.budget import steps_per_epoch, total_steps
from paircaps.experiments.shapes import noise_like
from paircaps.training.assemble import build_objective
from paircaps.training.datasets import Datasets, tested_name
from paircaps.training.recipe import Recipe

_IMAGES = 32
"""Of a timed step; that of a whole batch takes longer in proportion."""

_FORWARD = 1 / 3
"""Of the time of a training step: what an image takes that is only looked at."""


def seconds_of(recipe: Recipe) -> float:
    """A guess at the seconds of a training with its evaluations, good to a factor of about 1.5."""
    batch, test = recipe.train.batch_size, CARDS[tested_name(recipe.data)].counts["test"]
    if recipe.data.limit is not None:
        test = min(test, recipe.data.limit)
    steps = total_steps(recipe)
    epochs = max(1.0, steps / steps_per_epoch(recipe))
    held = recipe.data.validation / (1 - recipe.data.validation) * steps_per_epoch(recipe)
    looks = (1 + recipe.evaluate.mirror) * (epochs * held + test / batch)
    settling = (epochs + 1) * min(recipe.evaluate.settle, steps_per_epoch(recipe))
    return seconds_of_step(recipe) * (steps + _FORWARD * (looks + settling))


def seconds_of_step(recipe: Recipe) -> float:
    """Seconds of one training step, from one on fewer images."""
    dataset = noise_like(recipe, _IMAGES)
    few = replace(recipe, train=replace(recipe.train, batch_size=_IMAGES))
    objective = build_objective(few, Datasets(dataset, None, dataset), torch.device("cpu"))
    step = bare_step(few, objective, Loader(dataset, _IMAGES).batch(0, 0))
    step()  # the first one allocates
    return min(_timed(step), _timed(step)) * recipe.train.batch_size / _IMAGES


def _timed(step: Callable[[], None]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began
