"""Batches of images as tensors: bytes to floats, standardisation, the middle crop."""

from __future__ import annotations

import math

from torch import Tensor


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
