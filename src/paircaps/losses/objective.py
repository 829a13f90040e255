"""Training objective: class or mask loss plus a weight times the squared error of the reconstruction."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from paircaps.functional import reconstruction_loss
from paircaps.losses.base import ClassLoss, MaskPair, Outputs
from paircaps.losses.mask import target_masks
from paircaps.losses.settings import Loss
from paircaps.network import Network, most_active


class Losses(NamedTuple):
    """Parts of the loss of a batch, summed over its images.

    Attributes:
        class_loss: the class loss; that of the masks of a segmentation network.
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


class Objective(nn.Module):
    """The training objective: a network and its loss in one module, as data parallelism and ``torch.compile`` need it.

    Training calls the module, evaluation calls :meth:`losses` on outputs of its own.

    Args:
        network: network to train or evaluate.
        loss: settings of the loss.

    Raises:
        ValueError: if the class loss does not fit the network or the number of labels; the message says which would.
        TypeError: if the class loss has no such option.
    """

    progress: Tensor
    """Share of the training that is done, one value from 0 to 1, for losses that change over a training."""

    def __init__(self, network: Network, loss: Loss) -> None:
        super().__init__()
        model, labels_per_image = network.model, network.spec.labels_per_image
        self.network = network
        self.decoder_weight = loss.decoder_weight
        self.loss_name = loss.resolve(model.bounded, labels_per_image, network.has_masks, model.wanted_loss)
        self.class_loss = loss.create(self.loss_name)
        _require_fitting(self.class_loss, self.loss_name, network)
        # a tensor, not a number: torch.compile would compile each step anew; not saved, since it follows from the step
        self.register_buffer("progress", torch.ones(()), persistent=False)

    @property
    def certainty(self) -> str:
        """How activations become certainties, ``"activation"``, as they are, or ``"softmax"``; see NetworkSpec."""
        return "activation" if self.network.model.bounded else self.class_loss.certainty

    def set_progress(self, progress: float) -> None:
        """Say what share of the training is done, before a step; a new objective stands at its end.

        Args:
            progress: from 0 at the first step to 1 after the last.
        """
        self.progress.fill_(progress)

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
        losses = self.losses(Outputs(capsules, pair), labels, reconstruction, originals)
        right = count_right(capsules.activation.detach(), labels)
        return BatchLoss(losses.total, losses.reconstruction.detach(), right)

    def target_masks(self, labels: Tensor, mask_source: Tensor | None) -> Tensor:
        """Masks that a segmentation network should find, (B, J, H, W) of 0 and 1; see :func:`target_masks`."""
        if mask_source is None:
            raise ValueError(f"{self.network.spec.model} learns masks, and these images have none")
        return target_masks(labels, mask_source, len(self.network.classes))

    def losses(self, outputs: Outputs, labels: Tensor, reconstruction: Tensor | None, originals: Tensor) -> Losses:
        """Loss of a network's outputs, by its parts; outside of a training step it is that of the training's end.

        Args:
            outputs: capsules of the classes, and of a segmentation network masks, found and true.
            labels: (B,) class indices, or (B, D).
            reconstruction: output of the decoder, of the shape of ``originals``; None without a decoder.
            originals: images to reconstruct, (B, C, H, W), or (B, D, C, H, W).
        """
        progress = self.progress if self.training else torch.ones_like(self.progress)
        class_loss = self.class_loss(outputs, labels, progress)
        if reconstruction is None:
            return Losses(class_loss, class_loss.new_zeros(()), self.decoder_weight)
        return Losses(class_loss, reconstruction_loss(reconstruction, originals, "sum"), self.decoder_weight)


def _require_fitting(loss: ClassLoss, name: str, network: Network) -> None:
    """Raise an error if a class loss does not fit the labels, activations or poses of a network."""
    model, labels = network.model, network.spec.labels_per_image
    if loss.one_label and labels > 1:
        raise ValueError(f"{name} needs one label per image, these have {labels}: use margin")
    if loss.needs_bounded and not model.bounded:
        raise ValueError(
            f"{name} needs activations in 0..1, and those of this {network.spec.model} have no bound: use "
            f"{'margin' if labels > 1 else 'cross-entropy'}, or a routing whose activations lie there, such as dynamic"
        )
    if loss.needs_unit_cube and not model.in_unit_cube:
        raise ValueError(f"{name} needs poses in the unit cube, which those of {network.spec.model} are not: use auto")


def count_right(activation: Tensor, labels: Tensor) -> Tensor:
    """Number of images whose labels are the most active classes."""
    return is_right(activation, labels).sum()


def is_right(activation: Tensor, labels: Tensor) -> Tensor:
    """Whether the most active class is the label, or the two most active classes are the two labels: (B,) of bool."""
    if labels.dim() == 1:
        return most_active(activation, 1) == labels
    chosen = most_active(activation, labels.shape[-1])
    return (chosen.sort(-1).values == labels.sort(-1).values).all(-1)
