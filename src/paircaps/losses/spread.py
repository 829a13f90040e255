"""Spread loss, of matrix capsules with EM routing (Hinton, Sabour and Frosst 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from paircaps._utils.checks import require_choice, require_tensor, require_within
from paircaps._utils.labels import require_classes
from paircaps._utils.precision import in_full_precision
from paircaps.functional import REDUCTIONS
from paircaps.losses.base import ClassLoss, Outputs, present_classes, reduced
from paircaps.losses.registry import register_loss


@in_full_precision
def spread_loss(activation: Tensor, target: Tensor, margin: float | Tensor = 0.9, reduction: str = "mean") -> Tensor:
    """Spread loss: the label's activation must exceed every other one by a margin (Hinton et al. 2018).

        L = Σ_{i ≠ t} max(0, m − (a_t − a_i))²

    For several labels this is the mean of L over them, each against the classes that no label names. One label is as
    published; several are ours.

    >>> spread_loss(torch.tensor([[0.9, 0.3, 0.0]]), torch.tensor([0]))  # (0.9 − 0.6)²
    tensor(0.0900)

    Args:
        activation: a, activations of the classes, (..., J); made for 0..1.
        target: class indices, (...), or which classes are present, as 0 and 1, (..., J).
        margin: m, a number or a tensor of one value.
        reduction: ``"mean"`` averages over images, ``"sum"`` adds them up, ``"none"`` gives each image's, (...).

    Returns:
        the loss, a number, or (...) without a reduction.

    Raises:
        ValueError: if the target has another shape, or a class index that does not exist.
    """
    require_tensor("activation", activation, "(..., classes)", 1)
    require_choice("reduction", reduction, REDUCTIONS)
    present = require_classes(target, activation)
    gap = activation.unsqueeze(-1) - activation.unsqueeze(-2)  # a_t − a_i, (..., J, J)
    short = (margin - gap).clamp_min(0).square()
    pairs = present.unsqueeze(-1) * (1 - present).unsqueeze(-2)
    labels = present.sum(-1).clamp_min(1)
    return reduced((pairs * short).sum((-2, -1)) / labels, reduction)


class Spread(ClassLoss):
    """Spread loss with a margin that rises linearly over the training; evaluations have the margin of its end.

    A small margin at the start keeps capsules from dying, as the paper says of its rise from 0.2 to 0.9.

    Args:
        margin_start: margin before the first step.
        margin_end: margin at the end of the training.
    """

    follows_progress = True

    def __init__(self, margin_start: float = 0.2, margin_end: float = 0.9) -> None:
        require_within("margin_start", margin_start, 0, 1)
        require_within("margin_end", margin_end, 0, 1)
        self.margin_start, self.margin_end = margin_start, margin_end

    def margin(self, progress: Tensor) -> Tensor:
        """The margin at a share of the training, both tensors of one value."""
        return torch.lerp(progress.new_tensor(self.margin_start), progress.new_tensor(self.margin_end), progress)

    def __call__(self, outputs: Outputs, labels: Tensor, progress: Tensor) -> Tensor:
        """The loss of a batch, summed over its images."""
        activation = outputs.capsules.activation
        return spread_loss(activation, present_classes(labels, activation), self.margin(progress), "sum")


register_loss("spread", Spread)
