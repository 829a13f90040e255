"""Base class of segmentation networks: images to one mask per class, and capsules of the classes from the masks."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.precision import in_full_precision
from paircaps.functional import Capsules
from paircaps.models.base import ImageModel

LEAST_SHARE = 0.01
"""Share of an image's pixels below which a mask counts less: a few stray pixels are no digit."""


class Segmentation(NamedTuple):
    """Output of a segmentation network.

    Attributes:
        capsules: capsules of the classes, (B, J, K), (B, J, K) and (B, J).
        masks: logits of the masks, (B, J, H, W): above zero where a pixel belongs to the class.
    """

    capsules: Capsules
    masks: Tensor


class MaskModel(ImageModel):
    """Base class of segmentation networks: one mask per class, and an activation that says how surely it is there.

    A pixel may belong to several classes, or to none. It takes images of any size.
    """

    @abstractmethod
    def masks_and_poses(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W) to logits of the masks, (B, J, H, W), and poses of the classes, (B, J or 1, K, h, w)."""

    @property
    def bounded(self) -> bool:
        """Always True, since the activation of a class is pooled from probabilities."""
        return True

    @property
    def takes_any_size(self) -> bool:
        """Always True, since all positions share their weights."""
        return True

    def segment(self, images: Tensor) -> Segmentation:
        """Masks and capsules of the classes.

        Args:
            images: (B, C, H, W), as for a call.
        """
        self.require_images(images)
        return self._segment(images)

    def capsules(self, images: Tensor) -> Capsules:
        """(B, C, H, W) to capsules of (B, J, K), (B, J, K) and (B, J)."""
        return self._segment(images).capsules

    def _segment(self, images: Tensor) -> Segmentation:
        # autocast computes the masks in half precision, in which sums over all pixels would be coarse
        masks, poses = (part.to(images.dtype) for part in self.masks_and_poses(images))
        pose = mean_pose(masks, poses)
        return Segmentation(Capsules(pose, pose, mask_activation(masks)), masks)


@in_full_precision
def mask_activation(masks: Tensor) -> Tensor:
    """How surely each class is in an image: the mean probability of its mask's pixels, weighted by itself.

        a = Σ p² / (Σ p + 0.01 · H · W),  p = σ(mask)

    It lies in 0..1. Pixels that are surely elsewhere do not count, and a mask of a few pixels counts little.

    Args:
        masks: logits, (..., J, H, W).

    Returns:
        (..., J).
    """
    probability = masks.sigmoid().flatten(-2)
    least = LEAST_SHARE * probability.shape[-1]
    return probability.square().sum(-1) / (probability.sum(-1) + least)


@in_full_precision
def mean_pose(masks: Tensor, poses: Tensor) -> Tensor:
    """Mean over the grid of the poses of each class, weighted by the probability of its mask.

    Args:
        masks: logits, (B, J, H, W).
        poses: poses on a grid, (B, J, K, h, w), or (B, 1, K, h, w) where all classes share them.

    Returns:
        (B, J, K).
    """
    weight = F.interpolate(masks.sigmoid(), poses.shape[-2:], mode="area")
    weight = weight / weight.sum((-2, -1), keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
    return (poses * weight.unsqueeze(2)).sum((-2, -1))
