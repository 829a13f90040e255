"""A small classification task that needs no files, and a short training on it.

The task is to tell the ten digits of a seven-segment display, shifted, thick or thin, and noisy.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paircaps.functional import margin_loss

#          a
#        f   b
#          g
#        e   c
#          d
DIGITS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")
# each segment as (top, left, bottom, right) on a display 13 high and 7 wide, at its thinnest
SEGMENTS = {
    "a": (0, 0, 1, 7),
    "b": (0, 6, 7, 7),
    "c": (6, 6, 13, 7),
    "d": (12, 0, 13, 7),
    "e": (6, 0, 13, 1),
    "f": (0, 0, 7, 1),
    "g": (6, 0, 7, 7),
}
HEIGHT, WIDTH = 13, 7
NOISE = 0.2

LossFunction = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, LossFunction] = {"cross entropy": F.cross_entropy, "margin": margin_loss}


def segment_digits(count: int, generator: torch.Generator, size: int = 28) -> tuple[Tensor, Tensor]:
    """Random digits, (N, 1, size, size) in 0..1, and their classes, (N,)."""
    labels = torch.randint(10, (count,), generator=generator)
    images = torch.zeros(count, 1, size, size)
    for image, label in zip(images, labels.tolist(), strict=True):
        thickness = int(torch.randint(3, (), generator=generator))
        room = size - HEIGHT - thickness, size - WIDTH - thickness
        top, left = (int(torch.randint(space + 1, (), generator=generator)) for space in room)
        for segment in DIGITS[label]:
            y0, x0, y1, x1 = SEGMENTS[segment]
            image[:, top + y0 : top + y1 + thickness, left + x0 : left + x1 + thickness] = 1
    noise = torch.rand(images.shape, generator=generator)
    return (1 - NOISE) * images + NOISE * noise, labels


def train(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    steps: int,
    loss: str,
    lr: float,
    batch: int,
    seed: int = 0,
) -> list[float]:
    """Train with Adam on random batches, and return the loss of each step.

    Args:
        model: a network whose output has activations, (B, J).
        images: (N, C, H, W).
        labels: (N,).
        steps: number of updates.
        loss: a name of LOSSES.
        lr: learning rate.
        batch: images in a step.
        seed: of the random batches.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    losses = []
    model.train()
    for _ in range(steps):
        chosen = torch.randint(len(images), (batch,), generator=generator)
        value = LOSSES[loss](model(images[chosen]).activation, labels[chosen])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


@torch.no_grad()
def measure_accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of images, from 0 to 1, whose most active capsule is that of their class."""
    model.eval()
    predicted = [model(batch).activation.argmax(dim=-1) for batch in images.split(128)]
    return (torch.cat(predicted) == labels).float().mean().item()
