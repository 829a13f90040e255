"""Moving pictures about, a batch at a time, on whatever device they are."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.checks import height_and_width
from paircaps.data.synthetic.poses import linear_map

Size = int | tuple[int, int]
"""A side, or (height, width)."""


def warp(images: Tensor, pose: Tensor, size: Size | None = None) -> Tensor:
    """Every picture in its pose.

    Args:
        images: (B, C, H, W), uint8 or float.
        pose: (B, 5).
        size: of the result, height and width; what lies outside of a picture is black.

    Returns:
        (B, C, *size) in the images' dtype, bytes rounded.
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
    """Cut a window out of every picture: (B, C, H, W) and corners (B,) to (B, C, *size)."""
    views = images.unfold(2, size[0], 1).unfold(3, size[1], 1)  # (B, C, corners, corners, *size), no copy
    rows = torch.arange(len(images), device=images.device)
    return views[rows, :, top.to(images.device), left.to(images.device)]


def place(images: Tensor, top: Tensor, left: Tensor, size: tuple[int, int]) -> Tensor:
    """Put every picture on a black canvas, its corner at (top, left); what sticks out is cut off."""
    above, below = _margins(top, images.shape[-2], size[0])
    before, behind = _margins(left, images.shape[-1], size[1])
    return window(F.pad(images, (before, behind, above, below)), above - top, before - left, size)


def _margins(corner: Tensor, length: int, canvas: int) -> tuple[int, int]:
    """How much black to put on both sides of a picture so that every window fits."""
    if not len(corner):
        return 0, canvas - min(length, canvas)  # no picture at all, of the right size
    return max(int(corner.max()), 0), max(canvas - int(corner.min()) - length, 0)


def ink_boxes(images: Tensor) -> Tensor:
    """Where there is ink, (B, 4): left, top, right, bottom edges in pixels from the middle of the picture."""
    height, width = images.shape[-2:]
    ink = (images > 0).any(1)
    edges = [*_ends(ink.any(1)), *_ends(ink.any(2))]  # of columns, of rows
    left, right, top, bottom = edges
    return torch.stack([left - width / 2, top - height / 2, right - width / 2, bottom - height / 2], -1)


def _ends(some: Tensor) -> tuple[Tensor, Tensor]:
    """First and one past the last True of each row; the whole row where there is none."""
    length = some.shape[1]
    first = some.to(torch.uint8).argmax(1)
    last = length - some.flip(1).to(torch.uint8).argmax(1)
    return first.float(), last.float()


def _pixels_from_middle(height: int, width: int, device: torch.device) -> Tensor:
    """Centres of the pixels as (1, H, W, 2), x and y from the middle of the picture."""
    y = torch.arange(height, device=device) + 0.5 - height / 2
    x = torch.arange(width, device=device) + 0.5 - width / 2
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)[None]
