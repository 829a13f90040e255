"""Margin loss of activations in 0..1, for any number of labels (E10)."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from paircaps._utils.checks import require_choice
from paircaps.functional import margin_loss
from paircaps.losses.base import ClassLoss, Outputs, present_classes
from paircaps.losses.registry import register_loss


class Margin(ClassLoss):
    """Margin loss: 0.9 or more for every class of the labels, 0.1 or less for all others (E10).

    Args:
        over_classes: sum over the classes (the paper's text) or their mean (its runs).
    """

    certainty: ClassVar[Literal["softmax", "activation"]] = "activation"

    def __init__(self, over_classes: str = "sum") -> None:
        require_choice("over_classes", over_classes, ("sum", "mean"))
        self.over_classes = over_classes

    def __call__(self, outputs: Outputs, labels: Tensor, progress: Tensor) -> Tensor:
        """The loss of a batch, summed over its images."""
        activation = outputs.capsules.activation
        if labels.dim() == 2:  # T of E10: every label's class is present
            labels = present_classes(labels, activation)
        return margin_loss(activation, labels, "sum", over_classes=self.over_classes)


register_loss("margin", Margin)
