"""Negative logarithm of the label's activation, of self-routing (Hahn, Pyeon and Kim 2019)."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from paircaps._utils.checks import require_choice, require_tensor
from paircaps._utils.labels import require_classes
from paircaps._utils.precision import in_full_precision
from paircaps.functional import REDUCTIONS
from paircaps.losses.base import ClassLoss, Outputs, present_classes, reduced
from paircaps.losses.registry import register_loss

LEAST_ACTIVATION = 1e-8
"""Activation below which the loss rises no further, and its gradient neither."""


@in_full_precision
def nll_loss(activation: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Negative logarithm of the label's activation, which must be a probability (self-routing, 2019).

        L = −log max(a_t, 1e-8)

    For several labels it is the mean over them. An activation below 1e-8, exactly 0 included, has the gradient of 1e-8,
    so that a class that has died can come back. One label is as published; several, and the bound, are ours.

    >>> import torch
    >>> nll_loss(torch.tensor([[0.25, 0.75]]), torch.tensor([1]))  # −log 0.75
    tensor(0.2877)

    Args:
        activation: a, activations of the classes in 0..1, (..., J).
        target: class indices, (...), or which classes are present, as 0 and 1, (..., J).
        reduction: ``"mean"`` averages over images, ``"sum"`` adds them up, ``"none"`` gives each image's, (...).

    Returns:
        the loss, a number, or (...) without a reduction.

    Raises:
        ValueError: if the target has another shape, or a class index that does not exist.
    """
    require_tensor("activation", activation, "(..., classes)", 1)
    require_choice("reduction", reduction, REDUCTIONS)
    present = require_classes(target, activation)
    # the value is clamped and the gradient goes through: clamp alone would leave a dead class without one
    safe = activation + (LEAST_ACTIVATION - activation).clamp_min(0).detach()
    labels = present.sum(-1).clamp_min(1)
    return reduced(-(present * safe.log()).sum(-1) / labels, reduction)


class NegativeLog(ClassLoss):
    """Negative logarithm of the label's activation, for networks whose activations are probabilities."""

    certainty: ClassVar[Literal["softmax", "activation"]] = "activation"
    needs_bounded = True

    def __call__(self, outputs: Outputs, labels: Tensor, progress: Tensor) -> Tensor:
        """The loss of a batch, summed over its images."""
        activation = outputs.capsules.activation
        return nll_loss(activation, present_classes(labels, activation), "sum")


register_loss("nll", NegativeLog)
