"""Loss of masks, and the masks that a segmentation network should find."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.images import as_float
from paircaps.losses.base import ClassLoss, Outputs
from paircaps.losses.registry import register_loss

MASK_BRIGHTNESS = 0.25
"""Brightness in 0..1 above which a pixel belongs to a digit, where the digit is drawn alone."""

PIXEL_WEIGHT = 10.0
"""Weight of the cross entropy of the pixels beside the Dice loss of a mask."""


class Mask(ClassLoss):
    """Loss of the masks of a segmentation network; see :func:`paircaps.losses.mask_loss`."""

    needs_masks: ClassVar[bool] = True

    def __call__(self, outputs: Outputs, labels: Tensor, progress: Tensor) -> Tensor:
        """The loss of a batch, summed over its images and classes."""
        assert outputs.masks is not None  # a network that gives none is refused before
        return mask_loss(*outputs.masks)


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


register_loss("mask", Mask)
