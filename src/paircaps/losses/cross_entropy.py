"""Cross entropy of the softmax of activations without a bound (E11)."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.checks import require_within
from paircaps.losses.base import ClassLoss, Outputs
from paircaps.losses.registry import register_loss


class CrossEntropy(ClassLoss):
    """Cross entropy of the softmax of the activations, for images with one label each (E11).

    Args:
        label_smoothing: share of the target that is spread over all classes.
    """

    one_label: ClassVar[bool] = True

    def __init__(self, label_smoothing: float = 0.0) -> None:
        require_within("label_smoothing", label_smoothing, 0, 1)
        self.label_smoothing = label_smoothing

    def __call__(self, outputs: Outputs, labels: Tensor, progress: Tensor) -> Tensor:
        """The loss of a batch, summed over its images."""
        activation = outputs.capsules.activation
        return F.cross_entropy(activation, labels, reduction="sum", label_smoothing=self.label_smoothing)


register_loss("cross-entropy", CrossEntropy)
