"""What a network is trained for: a loss of its activations, plus that of its drawings times a weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_within
from paircaps._utils.labels import one_hot
from paircaps.functional import margin_loss, reconstruction_loss
from paircaps.network import DECODERS, Network, most_active

ClassLoss = Callable[[Tensor, Tensor], Tensor]
"""Activations (B, J) and labels (B,) or (B, D) to the sum of the losses of all images."""


@dataclass(frozen=True)
class Loss:
    """What is minimised.

    Args:
        name: cross-entropy of a softmax (E11, one label an image), margin (E10, any number of them), or auto: margin
            for activations in 0..1 (dynamic, em) and for several labels, cross-entropy for the others (fm, pooling).
        label_smoothing: share of the cross entropy's target that is spread over all classes.
        over_classes: margin as a sum over classes (the paper's text) or their mean (its runs).
        decoder: that redraws the input from the label's pose: none, deconv (the paper's) or dense (CapsNet's).
        decoder_weight: of the squared error of a drawing, summed over its pixels.
    """

    name: Literal["auto", "cross-entropy", "margin"] = "auto"
    label_smoothing: float = 0.0
    over_classes: Literal["sum", "mean"] = "sum"
    decoder: Literal["none", "deconv", "dense"] = "none"
    decoder_weight: float = 0.0005

    def __post_init__(self) -> None:
        require_choice("name", self.name, ("auto", "cross-entropy", "margin"))
        require_within("label_smoothing", self.label_smoothing, 0, 1)
        require_choice("over_classes", self.over_classes, ("sum", "mean"))
        require_choice("decoder", self.decoder, DECODERS)
        require_within("decoder_weight", self.decoder_weight, 0, 1e6)

    def resolve(self, bounded: bool, labels_per_image: int) -> str:
        """Which loss ``auto`` means."""
        if self.name != "auto":
            return self.name
        return "margin" if bounded or labels_per_image > 1 else "cross-entropy"


class BatchLoss(NamedTuple):
    """Sums over the images of a batch: the ``loss``, the ``drawing`` part of it, and how many are ``right``."""

    loss: Tensor
    drawing: Tensor
    right: Tensor


class Objective(nn.Module):
    """A network and its loss as one module: what data parallelism and compilers take.

    Args:
        network: to train.
        loss: what for.
    """

    def __init__(self, network: Network, loss: Loss) -> None:
        super().__init__()
        labels_per_image = network.spec.labels_per_image
        self.network = network
        self.decoder_weight = loss.decoder_weight
        self.loss_name = loss.resolve(network.model.bounded, labels_per_image)
        self.class_loss = _class_loss(self.loss_name, loss, labels_per_image)

    def forward(self, images: Tensor, labels: Tensor, originals: Tensor) -> BatchLoss:
        """Judge a batch.

        Args:
            images: (B, C, H, W) in 0..1.
            labels: (B,) class indices, or (B, D).
            originals: what a drawing should look like, (B, C, H, W), or (B, D, C, H, W).
        """
        capsules = self.network(images)
        loss = self.class_loss(capsules.activation, labels)
        drawing = loss.new_zeros(())
        if self.network.decoder is not None:
            drawn = self.network.decoder(capsules, labels)
            drawing = self.decoder_weight * reconstruction_loss(drawn, originals, "sum")
        return BatchLoss(loss + drawing, drawing.detach(), count_right(capsules.activation.detach(), labels))


def count_right(activation: Tensor, labels: Tensor) -> Tensor:
    """How many images have just their labels as the most active classes."""
    return is_right(activation, labels).sum()


def is_right(activation: Tensor, labels: Tensor) -> Tensor:
    """Whether the most active class is the label, or the two most active ones the two labels: (B,)."""
    if labels.dim() == 1:
        return most_active(activation, 1) == labels
    chosen = most_active(activation, labels.shape[-1])
    return (chosen.sort(-1).values == labels.sort(-1).values).all(-1)


def _class_loss(name: str, loss: Loss, labels_per_image: int) -> ClassLoss:
    if name == "margin":
        if loss.label_smoothing:
            raise ValueError(f"label_smoothing is cross-entropy's; margin has none, got {loss.label_smoothing}")
        return partial(_margin, over_classes=loss.over_classes)
    if labels_per_image > 1:
        raise ValueError(f"cross-entropy needs one label an image, these have {labels_per_image}: use margin")
    return partial(F.cross_entropy, reduction="sum", label_smoothing=loss.label_smoothing)


def _margin(activation: Tensor, labels: Tensor, over_classes: str) -> Tensor:
    if labels.dim() == 2:  # T of E10: every label's class is present
        labels = one_hot(labels, activation.shape[-1], activation.dtype).amax(1)
    return margin_loss(activation, labels, "sum", over_classes=over_classes)
