"""Batches of images as tensors: bytes to floats, standardisation, the middle crop, smaller sizes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.checks import require_memory

_RESIZE_CHUNK = 2048  # images at a time, as floats


def as_float(images: Tensor) -> Tensor:
    """Images of bytes as floats in 0..1; images of floats unchanged."""
    return images if images.is_floating_point() else images.float() / 255


def standardise(images: Tensor) -> Tensor:
    """(x − mean) / max(deviation, 1/√n), over all n values of each image (B, C, H, W)."""
    images = as_float(images)
    mean = images.mean((1, 2, 3), keepdim=True)
    deviation = (images - mean).square().mean((1, 2, 3), keepdim=True).sqrt()
    return (images - mean) / deviation.clamp(min=math.prod(images.shape[1:]) ** -0.5)


def middle(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Centre crop of images, (..., H, W) to (..., *size)."""
    height, width = size
    top, left = (images.shape[-2] - height) // 2, (images.shape[-1] - width) // 2
    return images[..., top : top + height, left : left + width]


def resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Scale images (N, C, H, W) in uint8; a pixel of a smaller image is the mean of those it covers."""
    require_memory(5 * len(images), (images.shape[1], *size), f"{len(images):,} images of {size[0]}×{size[1]}")
    mode = "area" if size[0] <= images.shape[-2] and size[1] <= images.shape[-1] else "bilinear"
    parts = [F.interpolate(part.float(), size, mode=mode) for part in images.split(_RESIZE_CHUNK)]
    return torch.cat([part.round().to(torch.uint8) for part in parts])
