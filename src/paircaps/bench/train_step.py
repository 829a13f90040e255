"""A bare training step on one batch: the reference for the training loop, and for comparing networks."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps.data import Batch
from paircaps.losses import Objective
from paircaps.training.assemble import memory_format
from paircaps.training.optimiser import create_optimiser
from paircaps.training.recipe import Recipe
from paircaps.training.step import HALF


@dataclass(frozen=True)
class TrainStep:
    """Forward pass, backward pass and update on one batch in memory; each call is a step.

    Args:
        objective: network and loss that are trained.
        optimiser: optimiser of the network's weights.
        images: images of the batch, (B, C, H, W).
        labels: classes, (B,) or (B, D).
        originals: images that reconstructions are compared with.
        half: half precision of autocast, or None for that of the weights.
        mask_source: where each class is, for a network that learns masks; None where that is not known.
    """

    objective: Objective
    optimiser: torch.optim.Optimizer
    images: Tensor
    labels: Tensor
    originals: Tensor
    half: torch.dtype | None = None
    mask_source: Tensor | None = None

    def forward(self) -> Tensor:
        """Return the mean loss of the batch."""
        with self._autocast():
            losses = self.objective(self.images, self.labels, self.originals, self.mask_source)
            return losses.loss / len(self.images)

    def _autocast(self) -> AbstractContextManager[object]:
        """Context of the precision, which the backward pass then keeps."""
        return torch.autocast(self.images.device.type, self.half) if self.half else contextlib.nullcontext()

    def __call__(self) -> None:
        """Take one step."""
        self.optimiser.zero_grad()
        self.forward().backward()
        self.optimiser.step()


def train_step(recipe: Recipe, objective: Objective, batch: Batch) -> TrainStep:
    """Build a training step in the memory format and precision of a recipe, on the device of the objective.

    Args:
        recipe: its optimiser, memory format and precision are used; ``auto`` is fp32 here.
        objective: network and loss to train.
        batch: images and labels of every step.
    """
    layout = memory_format(recipe, objective)
    objective.to(memory_format=layout).train()  # pyright: ignore[reportCallIssue]
    batch = batch.to(next(objective.parameters()).device)
    images = batch.images.contiguous(memory_format=layout)
    optimiser = create_optimiser(recipe.optimiser, objective.network)
    half = HALF.get(recipe.train.precision)
    _, labels, originals, *_ = batch.learned
    return TrainStep(objective, optimiser, images, labels, originals, half, batch.mask_source)
