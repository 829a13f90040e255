"""What a training costs: parameters of its network, and time on this machine, from a few steps on noise."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch

from paircaps.bench.train_step import train_step
from paircaps.data.dataset import StoredDataset
from paircaps.data.loader import Loader
from paircaps.data.metadata import METADATA
from paircaps.data.synthetic.noise import noise_like
from paircaps.models import count_parameters
from paircaps.network import Network
from paircaps.paper.training_length import steps_per_epoch, total_steps
from paircaps.training.assemble import build_objective, choose_device, network_spec
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


def images_like(recipe: Recipe, count: int) -> StoredDataset:
    """Noise as the images of a recipe in shape and labels."""
    side = recipe.augment.crop_size or cast("int | None", recipe.data.options.get("image_size"))
    return noise_like(METADATA[recipe.data.name], count, side)


def parameters_of(recipe: Recipe) -> tuple[int, int]:
    """Trainable parameters of a recipe's network, and of its decoder."""
    spec = network_spec(recipe, images_like(recipe, 1))
    with torch.device("meta"):  # shapes only
        network = Network(spec)
    return count_parameters(network.model), 0 if network.decoder is None else count_parameters(network.decoder)
