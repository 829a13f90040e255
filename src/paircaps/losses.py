"""Training objective: class or mask loss plus a weight times the squared error of the reconstruction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_within
from paircaps._utils.images import as_float
from paircaps._utils.labels import one_hot
from paircaps.functional import margin_loss, reconstruction_loss
from paircaps.network import DECODERS, Network, most_active

__all__ = [
    "BatchLoss",
    "Loss",
    "Losses",
    "MaskPair",
    "Objective",
    "mask_loss",
    "target_masks",
]

ClassLoss = Callable[[Tensor, Tensor], Tensor]
"""From activations (B, J) and labels, (B,) or (B, D), to the sum of the class losses of all images."""

MASK_BRIGHTNESS = 0.25
"""Brightness in 0..1 above which a pixel belongs to a digit, where the digit is drawn alone."""

PIXEL_WEIGHT = 10.0
"""Weight of the cross entropy of the pixels beside the Dice loss of a mask."""


@dataclass(frozen=True)
class Loss:
    """Settings of the training objective.

    Args:
        name: class loss: cross-entropy of a softmax (E11, one label per image), margin (E10, any number of labels), or
            auto: margin for activations in 0..1 (dynamic, em) and for several labels, else cross-entropy (fm, pooling).
            A segmentation network has the loss of its masks, mask, which auto stands for there.
        label_smoothing: share of the cross entropy's target that is spread over all classes.
        over_classes: margin loss as a sum over classes (the paper's text) or their mean (its runs).
        decoder: decoder that reconstructs the image from the label's pose: none, deconv (the paper's) or dense
            (CapsNet's).
        decoder_weight: weight of the squared error of a reconstruction, summed over its pixels.
    """

    name: Literal["auto", "cross-entropy", "margin", "mask"] = "auto"
    label_smoothing: float = 0.0
    over_classes: Literal["sum", "mean"] = "sum"
    decoder: Literal["none", "deconv", "dense"] = "none"
    decoder_weight: float = 0.0005

    def __post_init__(self) -> None:
        require_choice("name", self.name, ("auto", "cross-entropy", "margin", "mask"))
        require_within("label_smoothing", self.label_smoothing, 0, 1)
        require_choice("over_classes", self.over_classes, ("sum", "mean"))
        require_choice("decoder", self.decoder, DECODERS)
        require_within("decoder_weight", self.decoder_weight, 0, 1e6)

    def resolve(self, bounded: bool, labels_per_image: int, has_masks: bool = False) -> str:
        """The loss that ``name`` stands for, ``"margin"``, ``"cross-entropy"`` or ``"mask"``.

        Args:
            bounded: whether the network's activations lie in 0..1.
            labels_per_image: number of labels of an image.
            has_masks: whether the network gives a mask for each class.

        Raises:
            ValueError: if a segmentation network is given another loss than that of its masks, or the other way round.
        """
        if has_masks and self.name not in ("auto", "mask"):
            raise ValueError(f"name: {self.name} is for networks that classify; one that gives masks has auto or mask")
        if self.name == "mask" and not has_masks:
            raise ValueError("name: mask is for networks that give masks, such as caps-segment; use auto")
        if has_masks:
            return "mask"
        if self.name != "auto":
            return self.name
        return "margin" if bounded or labels_per_image > 1 else "cross-entropy"


class Losses(NamedTuple):
    """Parts of the loss of a batch, summed over its images.

    Attributes:
        class_loss: cross-entropy or margin loss; that of the masks of a segmentation network.
        squared_error: squared error of the reconstructions, summed over their pixels; 0 without a decoder.
        decoder_weight: weight of the squared error.
    """

    class_loss: Tensor
    squared_error: Tensor
    decoder_weight: float

    @property
    def reconstruction(self) -> Tensor:
        """The reconstructions' part of the loss."""
        return self.decoder_weight * self.squared_error

    @property
    def total(self) -> Tensor:
        """The loss."""
        return self.class_loss + self.reconstruction

    def double(self) -> Losses:
        """The same in double precision, on the CPU and without gradient, to be added up over many batches."""
        class_loss, squared_error = (part.detach().cpu().double() for part in (self.class_loss, self.squared_error))
        return Losses(class_loss, squared_error, self.decoder_weight)


class BatchLoss(NamedTuple):
    """Sums over the images of a batch.

    Attributes:
        loss: loss, with gradient.
        reconstruction: part of it that is the reconstruction's, without gradient; 0 without a decoder.
        right: number of images whose labels are the most active classes.
    """

    loss: Tensor
    reconstruction: Tensor
    right: Tensor


class MaskPair(NamedTuple):
    """Masks of a batch.

    Attributes:
        found: logits that a network gives, (B, J, H, W).
        true: masks that it should find, (B, J, H, W) of 0 and 1.
    """

    found: Tensor
    true: Tensor


class Objective(nn.Module):
    """The training objective: a network and its loss in one module, as data parallelism and ``torch.compile`` need it.

    Training calls the module, evaluation calls :meth:`losses` on outputs of its own.

    Args:
        network: network to train or evaluate.
        loss: settings of the loss.
    """

    def __init__(self, network: Network, loss: Loss) -> None:
        super().__init__()
        labels_per_image = network.spec.labels_per_image
        self.network = network
        self.decoder_weight = loss.decoder_weight
        self.loss_name = loss.resolve(network.model.bounded, labels_per_image, network.has_masks)
        self.class_loss = None if network.has_masks else _class_loss(self.loss_name, loss, labels_per_image)

    def forward(
        self, images: Tensor, labels: Tensor, originals: Tensor, mask_source: Tensor | None = None
    ) -> BatchLoss:
        """Loss of a batch; the decoder gets the poses of the labels.

        Args:
            images: (B, C, H, W) in 0..1.
            labels: (B,) class indices, or (B, D).
            originals: images to reconstruct, (B, C, H, W), or (B, D, C, H, W).
            mask_source: where each class is, as for :func:`target_masks`; read for a segmentation network alone.
        """
        capsules, masks = self.network.capsules_and_masks(images)
        decoder = self.network.decoder
        reconstruction = None if decoder is None else decoder(capsules, labels)
        pair = None if masks is None else MaskPair(masks, self.target_masks(labels, mask_source))
        losses = self.losses(capsules.activation, labels, reconstruction, originals, pair)
        right = count_right(capsules.activation.detach(), labels)
        return BatchLoss(losses.total, losses.reconstruction.detach(), right)

    def target_masks(self, labels: Tensor, mask_source: Tensor | None) -> Tensor:
        """Masks that a segmentation network should find, (B, J, H, W) of 0 and 1; see :func:`target_masks`."""
        if mask_source is None:
            raise ValueError(f"{self.network.spec.model} learns masks, and these images have none")
        return target_masks(labels, mask_source, len(self.network.classes))

    def losses(
        self,
        activation: Tensor,
        labels: Tensor,
        reconstruction: Tensor | None,
        originals: Tensor,
        masks: MaskPair | None = None,
    ) -> Losses:
        """Loss of a network's outputs, by its parts.

        Args:
            activation: activations of the classes, (B, J).
            labels: (B,) class indices, or (B, D).
            reconstruction: output of the decoder, of the shape of ``originals``; None without a decoder.
            originals: images to reconstruct, (B, C, H, W), or (B, D, C, H, W).
            masks: masks of a segmentation network, found and true; None for others.
        """
        if masks is not None:
            class_loss = mask_loss(*masks)
        else:
            assert self.class_loss is not None
            class_loss = self.class_loss(activation, labels)
        if reconstruction is None:
            return Losses(class_loss, class_loss.new_zeros(()), self.decoder_weight)
        return Losses(class_loss, reconstruction_loss(reconstruction, originals, "sum"), self.decoder_weight)


def target_masks(labels: Tensor, source: Tensor, classes: int) -> Tensor:
    """Masks that a segmentation network should find: one for each class, 1 where a pixel belongs to it.

    Args:
        labels: (B,) class indices, or (B, D).
        source: either each digit alone, (B, D, C, H, W) in 0..1 or uint8, to which those pixels belong where it is
            brighter than ``MASK_BRIGHTNESS`` in any channel; or the index of each pixel, (B, H, W), 0 where there is
            nothing and k where there is class k − 1.
        classes: J, the number of classes.

    Returns:
        (B, J, H, W) of 0.0 and 1.0.
    """
    if source.dim() == 3:
        index = torch.arange(1, classes + 1, device=source.device)
        return (source.unsqueeze(1) == index[:, None, None]).float()
    there = (as_float(source) > MASK_BRIGHTNESS).any(2).float()  # (B, D, H, W)
    masks = there.new_zeros(len(there), classes, *there.shape[-2:])
    return masks.scatter_(1, labels.reshape(len(labels), -1, 1, 1).expand_as(there), there)


def mask_loss(found: Tensor, true: Tensor) -> Tensor:
    """Loss of masks, summed over images and classes: binary cross entropy of the pixels, and soft Dice of the mask.

        10 · mean over pixels of BCE(m, t) + 1 − (2 Σ p t + 1) / (Σ p + Σ t + 1),  p = σ(m)

    Args:
        found: logits m, (B, J, H, W).
        true: masks t of 0 and 1, (B, J, H, W).
    """
    found, true = found.float(), true.float()
    pixels = F.binary_cross_entropy_with_logits(found, true, reduction="none").mean((-2, -1))
    probability = found.sigmoid()
    both, either = (probability * true).sum((-2, -1)), (probability + true).sum((-2, -1))
    return (PIXEL_WEIGHT * pixels + 1 - (2 * both + 1) / (either + 1)).sum()


def count_right(activation: Tensor, labels: Tensor) -> Tensor:
    """Number of images whose labels are the most active classes."""
    return is_right(activation, labels).sum()


def is_right(activation: Tensor, labels: Tensor) -> Tensor:
    """Whether the most active class is the label, or the two most active classes are the two labels: (B,) of bool."""
    if labels.dim() == 1:
        return most_active(activation, 1) == labels
    chosen = most_active(activation, labels.shape[-1])
    return (chosen.sort(-1).values == labels.sort(-1).values).all(-1)


def _class_loss(name: str, loss: Loss, labels_per_image: int) -> ClassLoss:
    """Class loss of a name, with the options of the settings."""
    if name == "margin":
        if loss.label_smoothing:
            raise ValueError(f"label_smoothing is cross-entropy's; margin has none, got {loss.label_smoothing}")
        return partial(_margin, over_classes=loss.over_classes)
    if labels_per_image > 1:
        raise ValueError(f"cross-entropy needs one label per image, these have {labels_per_image}: use margin")
    return partial(F.cross_entropy, reduction="sum", label_smoothing=loss.label_smoothing)


def _margin(activation: Tensor, labels: Tensor, over_classes: str) -> Tensor:
    """Margin loss of one or several labels per image, summed over the images."""
    if labels.dim() == 2:  # T of E10: every label's class is present
        labels = one_hot(labels, activation.shape[-1], activation.dtype).amax(1)
    return margin_loss(activation, labels, "sum", over_classes=over_classes)
