"""What a class loss gets and what it is: the outputs of a network, and the base class of class losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor

from paircaps._utils.labels import one_hot
from paircaps.functional import Capsules


class MaskPair(NamedTuple):
    """Masks of a batch.

    Attributes:
        found: logits that a network gives, (B, J, H, W).
        true: masks that it should find, (B, J, H, W) of 0 and 1.
    """

    found: Tensor
    true: Tensor


class Outputs(NamedTuple):
    """What a class loss is computed from.

    Attributes:
        capsules: capsules of the classes, (B, J, K), (B, J, K) and (B, J).
        masks: masks of a segmentation network, found and true; None for others.
    """

    capsules: Capsules
    masks: MaskPair | None = None


class ClassLoss(ABC):
    """Base class of class losses. A subclass implements ``__call__``; its options are the arguments of its constructor.

    >>> import torch
    >>> class SquaredError(ClassLoss):
    ...     certainty = "activation"
    ...     def __init__(self, weight: float = 1.0) -> None:
    ...         self.weight = weight
    ...     def __call__(self, outputs, labels, progress):
    ...         activation = outputs.capsules.activation
    ...         present = present_classes(labels, activation)
    ...         return self.weight * (activation - present).square().sum()
    >>> capsules = Capsules(torch.zeros(1, 3, 4), torch.zeros(1, 3, 4), torch.tensor([[0.5, 0.0, 1.0]]))
    >>> SquaredError()(Outputs(capsules), torch.tensor([2]), torch.ones(()))
    tensor(0.2500)
    """

    certainty: ClassVar[Literal["softmax", "activation"]] = "softmax"
    """How activations without a bound become certainties after a training with this loss, by a softmax or as they are.
    Those in 0..1 always stay as they are."""

    one_label: ClassVar[bool] = False
    """Whether the loss is for images with one label each."""

    needs_bounded: ClassVar[bool] = False
    """Whether the loss is for activations in 0..1."""

    needs_unit_cube: ClassVar[bool] = False
    """Whether the loss is for poses in the unit cube, as ``hitnet`` has them."""

    needs_masks: ClassVar[bool] = False
    """Whether the loss is one of masks."""

    follows_progress: ClassVar[bool] = False
    """Whether the loss changes over a training, and so depends on the length of the whole run."""

    @abstractmethod
    def __call__(self, outputs: Outputs, labels: Tensor, progress: Tensor) -> Tensor:
        """The loss of a batch, summed over its images.

        Args:
            outputs: what the network made of the images.
            labels: (B,) class indices, or (B, D).
            progress: share of the training that is done, one value from 0 to 1; 1 in every evaluation.
        """


def present_classes(labels: Tensor, activation: Tensor) -> Tensor:
    """Which classes are present, as 0 and 1: (B, J) in the precision of the activations.

    Args:
        labels: (B,) class indices, or (B, D).
        activation: activations of the classes, (B, J).
    """
    codes = one_hot(labels, activation.shape[-1], activation.dtype)
    return codes.amax(1) if labels.dim() == 2 else codes


def reduced(per_image: Tensor, reduction: str) -> Tensor:
    """Losses of images, (...), averaged (``"mean"``), added up (``"sum"``) or as they are (``"none"``)."""
    if reduction == "none":
        return per_image
    return per_image.mean() if reduction == "mean" else per_image.sum()
