"""A training step and nothing else: the yardstick of the loop, and what networks are compared by."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps.data import Batch
from paircaps.losses import Objective
from paircaps.training.assemble import memory_format
from paircaps.training.optimiser import create_optimiser
from paircaps.training.recipe import Recipe


@dataclass(frozen=True)
class TrainStep:
    """Forward, backward and update on one batch that lies ready; each call is a step.

    Args:
        objective: a network, which learns, and its loss.
        optimiser: of its weights.
        images: (B, C, H, W).
        labels: (B,) or (B, D).
        originals: what drawings should look like.
    """

    objective: Objective
    optimiser: torch.optim.Optimizer
    images: Tensor
    labels: Tensor
    originals: Tensor

    def forward(self) -> Tensor:
        """The mean loss of the batch."""
        return self.objective(self.images, self.labels, self.originals).loss / len(self.images)

    def __call__(self) -> None:
        """One step."""
        self.optimiser.zero_grad()
        self.forward().backward()
        self.optimiser.step()


def train_step(recipe: Recipe, objective: Objective, batch: Batch) -> TrainStep:
    """A bare step of a recipe, in its memory format, where the objective is."""
    layout = memory_format(recipe, objective)
    objective.to(memory_format=layout).train()  # pyright: ignore[reportCallIssue]
    batch = batch.to(next(objective.parameters()).device)
    images = batch.images.contiguous(memory_format=layout)
    optimiser = create_optimiser(recipe.optimiser, objective)
    return TrainStep(objective, optimiser, images, batch.targets, batch.reconstruction_target)
