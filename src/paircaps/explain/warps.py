"""Images in known poses: shifted, rotated, scaled and sheared by known amounts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps.data import ImageDataset
from paircaps.data.dataset import Subset
from paircaps.data.randomness import permutation, uniform
from paircaps.data.synthetic.dataset import SyntheticDataset
from paircaps.data.synthetic.poses import POSE, UPRIGHT, PoseRange
from paircaps.data.synthetic.warp import warp

RANGES = PoseRange()
"""Ranges of random poses, those of aff-NIST: 20 degrees, a scale of 0.8 to 1.2, a shear of 0.2."""

SHIFT = 0.15
"""Largest shift in either direction, as a fraction of the image's side."""

_MOST_UPRIGHT = 4096  # images kept of a dataset unless another number is given


@dataclass(frozen=True)
class WarpedImages:
    """Images in known poses.

    Args:
        images: (N, C, H, W) in uint8.
        labels: classes, (N,).
        pose: x, y, rotation, scale and shear of each image, (N, 5).
    """

    images: Tensor
    labels: Tensor
    pose: Tensor


@dataclass(frozen=True)
class UprightImages:
    """Images before they are warped.

    Args:
        images: (N, C, h, w) in uint8.
        labels: classes, (N,).
        size: (height, width) in pixels of the canvas they are warped on.
    """

    images: Tensor
    labels: Tensor
    size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.labels)

    def warped(self, rows: Tensor, pose: Tensor) -> WarpedImages:
        """Warp some of the images.

        Args:
            rows: indices of the images, (N,).
            pose: pose of each, (N, 5).
        """
        return WarpedImages(warp(self.images[rows], pose, self.size), self.labels[rows], pose)


def upright_images(dataset: ImageDataset, seed: int = 0, most: int = _MOST_UPRIGHT) -> UprightImages:
    """Take images to be warped: the digits behind a synthetic dataset, or the images of any other.

    Args:
        dataset: where the images are from.
        seed: of the random choice among more images.
        most: number of images that are taken at most.
    """
    whole = dataset
    while isinstance(whole, Subset):
        whole = whole.parent
    base = whole.base.digits if isinstance(whole, SyntheticDataset) else dataset
    order = permutation(seed, 0, len(base), "upright")[:most]
    batch = base.batch(order)
    return UprightImages(batch.images, batch.labels, (dataset.shape[1], dataset.shape[2]))


def random_poses(count: int, size: tuple[int, int], seed: int, purpose: str) -> Tensor:
    """Draw poses uniformly within :data:`RANGES` and :data:`SHIFT`, (N, 5).

    Args:
        count: number of poses N.
        size: (height, width) of the images in pixels.
        seed: of the random numbers.
        purpose: name of what they are for, part of the seed.
    """
    noise = uniform(seed, 0, torch.arange(count), 5, purpose)
    reach = SHIFT * torch.tensor([size[1], size[0]], dtype=noise.dtype)
    return torch.cat([(2 * noise[:, :2] - 1) * reach, RANGES.draw(noise[:, 2:])], -1).float()


def warp_randomly(base: UprightImages, count: int, seed: int, purpose: str) -> WarpedImages:
    """Warp images into random poses, each image of the base equally often.

    Args:
        base: images to warp.
        count: number of warped images.
        seed: of the poses.
        purpose: name of what they are for, part of the seed.
    """
    rows = torch.arange(count) % len(base)
    return base.warped(rows, random_poses(count, base.size, seed, purpose))


def warp_sizes(kind: str, size: tuple[int, int]) -> list[float]:
    """Sizes of one kind of warp that accuracy is measured at: pixels, degrees, a factor, or a shear.

    Args:
        kind: ``"x"``, ``"y"``, ``"rotation"``, ``"scale"`` or ``"shear"``.
        size: (height, width) of the images in pixels.
    """
    if kind in ("x", "y"):
        side = size[1] if kind == "x" else size[0]
        return [round(side * step / 20) for step in range(7)]  # up to 0.3 of the side
    return {
        "rotation": [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
        "scale": [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
        "shear": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    }[kind]


def warp_one_way(base: UprightImages, count: int, kind: str, size: float) -> WarpedImages:
    """Warp the first images of the base by one kind of warp alone, in both directions where there are two.

    Args:
        base: images to warp.
        count: number of images that are warped.
        kind: of the warp, as in :func:`warp_sizes`.
        size: of the warp, as in :func:`warp_sizes`.
    """
    rows = torch.arange(min(count, len(base)))
    signs = (1.0,) if kind == "scale" or size == 0 else (1.0, -1.0)
    pose = torch.tensor(UPRIGHT).repeat(len(signs), len(rows), 1)
    for sign, poses in zip(signs, pose, strict=True):
        poses[:, POSE.index(kind)] = sign * size
    return base.warped(rows.repeat(len(signs)), pose.flatten(0, 1))
