"""Warp, cut and place images, a batch at a time, on their device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.checks import height_and_width
from paircaps.data.synthetic.poses import linear_map

Size = int | tuple[int, int]
"""A side, or (height, width)."""


def warp(images: Tensor, pose: Tensor, size: Size | None = None) -> Tensor:
    """Warp every image into its pose.

    Args:
        images: upright images (B, C, H, W), uint8 or float.
        pose: poses (B, 5).
        size: height and width of the result, those of the images without it; what lies outside of an image is black.

    Returns:
        images (B, C, *size) in the same dtype, bytes rounded.
    """
    height, width = tuple(images.shape[-2:]) if size is None else height_and_width("size", size)
    pose = pose.to(images.device, torch.float32)
    backward = torch.linalg.inv(linear_map(pose))
    target = _pixels_from_middle(height, width, images.device) - pose[:, None, None, :2]  # (B, H, W, 2)
    source = torch.einsum("bij,bhwj->bhwi", backward, target)
    half = torch.tensor([images.shape[-1] / 2, images.shape[-2] / 2], device=images.device)
    values = images if images.is_floating_point() else images.float()
    moved = F.grid_sample(values, (source / half).to(values.dtype), align_corners=False)
    return moved if images.is_floating_point() else moved.round().clamp(0, 255).to(images.dtype)


def window(images: Tensor, top: Tensor, left: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut a window out of every image: images (B, C, H, W) and corners (B,) to (B, C, *size)."""
    views = images.unfold(2, size[0], 1).unfold(3, size[1], 1)  # (B, C, corners, corners, *size), no copy
    rows = torch.arange(len(images), device=images.device)
    return views[rows, :, top.to(images.device), left.to(images.device)]


def place(images: Tensor, top: Tensor, left: Tensor, size: tuple[int, int]) -> Tensor:
    """Put every image on a black canvas, its corner at (top, left); what lies outside is cut off."""
    above, below = _margins(top, images.shape[-2], size[0])
    before, behind = _margins(left, images.shape[-1], size[1])
    return window(F.pad(images, (before, behind, above, below)), above - top, before - left, size)


def _margins(corner: Tensor, length: int, canvas: int) -> tuple[int, int]:
    """Pixels of black to add before and behind an image so that every window fits."""
    if not len(corner):
        return 0, canvas - min(length, canvas)  # no picture at all, of the right size
    return max(int(corner.max()), 0), max(canvas - int(corner.min()) - length, 0)


def ink_boxes(images: Tensor) -> Tensor:
    """Boxes around the ink (B, 4): left, top, right and bottom edges in pixels from the middle of the image."""
    height, width = images.shape[-2:]
    ink = (images > 0).any(1)
    edges = [*_ends(ink.any(1)), *_ends(ink.any(2))]  # of columns, of rows
    left, right, top, bottom = edges
    return torch.stack([left - width / 2, top - height / 2, right - width / 2, bottom - height / 2], -1)


def _ends(some: Tensor) -> tuple[Tensor, Tensor]:
    """Places of the first True and behind the last True of each row; both ends of the row where there is none."""
    length = some.shape[1]
    first = some.to(torch.uint8).argmax(1)
    last = length - some.flip(1).to(torch.uint8).argmax(1)
    return first.float(), last.float()


def _pixels_from_middle(height: int, width: int, device: torch.device) -> Tensor:
    """Centres of the pixels (1, H, W, 2), x and y counted from the middle of the image."""
    y = torch.arange(height, device=device) + 0.5 - height / 2
    x = torch.arange(width, device=device) + 0.5 - width / 2
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)[None]
