"""Batch norm of capsules and of votes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from paircaps._checks import shape_of

MOMENTUM = 0.01
"""Share of the new batch in the running statistics, everywhere in the paper's models (0.99 in TensorFlow's terms)."""

EPS = 1e-3
"""Added to each variance, everywhere in the paper's models."""


class CapsuleNorm(nn.BatchNorm1d):
    """Batch norm with one statistic for each entry of the trailing axes, over all axes before them (E3).

    ``CapsuleNorm((K,))`` has one statistic a pose dimension, over batch, children and parents;
    ``CapsuleNorm((I, J, K))`` one for every single vote, over the batch alone.

    Args:
        shape: the trailing axes that keep their own statistics.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__(math.prod(shape), eps=EPS, momentum=MOMENTUM)
        self.shape = tuple(shape)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (..., *shape), any number of leading axes."""
        if tuple(input.shape[-len(self.shape) :]) != self.shape:
            raise ValueError(f"expected a tensor of (..., {str(self.shape)[1:]}, got {shape_of(input)}")
        if self.training and input.numel() == self.num_features:
            raise ValueError(
                f"batch norm over single values of shape {self.shape} needs more than one image to train on, "
                f"got {shape_of(input)}; a model that only predicts belongs in eval mode"
            )
        return super().forward(input.reshape(-1, self.num_features)).reshape(input.shape)

    def extra_repr(self) -> str:
        """The shape, for print(model)."""
        return f"{self.shape}, eps={self.eps}, momentum={self.momentum}"
