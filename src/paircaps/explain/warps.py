"""Images warped on purpose, so that the true pose of each is known."""

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
"""Those of aff-NIST: 20 degrees, a scale of 0.8 to 1.2, a shear of 0.2."""

SHIFT = 0.15
"""Most that a thing is moved either way, as a part of the image's side."""

_BASE_MOST = 4096


@dataclass(frozen=True)
class Warped:
    """Images in known poses.

    Args:
        images: (N, C, H, W) in bytes.
        labels: (N,).
        pose: x, y, rotation, scale and shear, (N, 5).
    """

    images: Tensor
    labels: Tensor
    pose: Tensor


@dataclass(frozen=True)
class Upright:
    """Images as they are before they are warped.

    Args:
        images: (N, C, h, w) in bytes.
        labels: (N,).
        size: (height, width) of the canvas they are warped on.
    """

    images: Tensor
    labels: Tensor
    size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.labels)

    def warped(self, rows: Tensor, pose: Tensor) -> Warped:
        """These rows in these poses: (N,) and (N, 5)."""
        return Warped(warp(self.images[rows], pose, self.size), self.labels[rows], pose)


def upright(dataset: ImageDataset, seed: int = 0) -> Upright:
    """What to warp: of a made dataset the digits that it is made of, of any other its images, 4,096 at most."""
    whole = dataset
    while isinstance(whole, Subset):
        whole = whole.parent
    base = whole.base.digits if isinstance(whole, SyntheticDataset) else dataset
    order = permutation(seed, 0, len(base), "upright")[:_BASE_MOST]
    batch = base.batch(order)
    return Upright(batch.images, batch.labels, (dataset.shape[1], dataset.shape[2]))


def random_poses(count: int, size: tuple[int, int], seed: int, purpose: str) -> Tensor:
    """Poses (N, 5), all within :data:`RANGES` and :data:`SHIFT` as likely as any other."""
    noise = uniform(seed, 0, torch.arange(count), 5, purpose)
    reach = SHIFT * torch.tensor([size[1], size[0]], dtype=noise.dtype)
    return torch.cat([(2 * noise[:, :2] - 1) * reach, RANGES.draw(noise[:, 2:])], -1).float()


def in_random_poses(base: Upright, count: int, seed: int, purpose: str) -> Warped:
    """So many images, each row of the base as often as any other, each in a pose of its own."""
    rows = torch.arange(count) % len(base)
    return base.warped(rows, random_poses(count, base.size, seed, purpose))


def sizes_of(kind: str, size: tuple[int, int]) -> list[float]:
    """How far to go with one kind of warp, from nothing on: pixels, degrees, a factor, or a slant."""
    if kind in ("x", "y"):
        side = size[1] if kind == "x" else size[0]
        return [round(side * step / 20) for step in range(7)]  # up to 0.3 of the side
    return {
        "rotation": [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
        "scale": [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
        "shear": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    }[kind]


def in_one_warp(base: Upright, count: int, kind: str, size: float) -> Warped:
    """The first rows of the base, warped so far in one way; where there are two ways, in both."""
    rows = torch.arange(min(count, len(base)))
    signs = (1.0,) if kind == "scale" or size == 0 else (1.0, -1.0)
    pose = torch.tensor(UPRIGHT).repeat(len(signs), len(rows), 1)
    for sign, poses in zip(signs, pose, strict=True):
        poses[:, POSE.index(kind)] = sign * size
    return base.warped(rows.repeat(len(signs)), pose.flatten(0, 1))
