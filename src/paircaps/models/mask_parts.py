"""First and last layers of segmentation networks, which capsules and their twin have in common."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paircaps._utils.checks import require_positive
from paircaps.models.resnet import BasicBlock, NormReLU, conv

BLOCK = 2
"""Side of the square of pixels that becomes one position, all of whose pixels are channels there."""

FIRST_LOGIT = -3.0
"""Logit of all masks before the training: one pixel in twenty, as it is at first unknown which class is where."""


class MaskStem(nn.Module):
    """From pixels to maps of half the size without losing one: squares of 2×2 pixels become channels.

    Args:
        in_channels: channels of an image.
        width: channels of the maps.
    """

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__()
        require_positive(width=width)
        self.conv = nn.Sequential(conv(BLOCK**2 * in_channels, width, 3), NormReLU(width))
        self.block = nn.Sequential(BasicBlock(width, width, preactivated=True), NormReLU(width))

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) to maps of (B, width, ⌈H/2⌉, ⌈W/2⌉); a row or column of zeros makes odd sizes even."""
        height, width = images.shape[-2:]
        even = F.pad(images, (0, -width % BLOCK, 0, -height % BLOCK))
        return self.block(self.conv(F.pixel_unshuffle(even, BLOCK)))


class MaskTop(nn.Module):
    """The way up from a quarter to half the size, with a skip from the stem that makes borders sharp.

    Args:
        in_channels: channels of the maps at a quarter of the size.
        width: channels of the stem.
        features: channels from which masks are read.
    """

    def __init__(self, in_channels: int, width: int, features: int) -> None:
        super().__init__()
        require_positive(features=features)
        self.conv = nn.Sequential(conv(in_channels + width, features, 3), NormReLU(features))

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        """Maps at a quarter of the size, and those of the stem, to features of (B, features, ⌈H/2⌉, ⌈W/2⌉)."""
        return self.conv(torch.cat([enlarged(coarse, fine), fine], 1))


def mask_reader(features: int, num_classes: int) -> nn.Conv2d:
    """1×1 convolution from features to the masks of all pixels of a square, (B, 4 · J, h, w); empty masks at first."""
    layer = nn.Conv2d(features, num_classes * BLOCK**2, 1)
    assert layer.bias is not None
    nn.init.constant_(layer.bias, FIRST_LOGIT)
    return layer


def to_pixels(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps that have a channel for each pixel of a square, (B, 4 · J, ⌈H/2⌉, ⌈W/2⌉), to (B, J, H, W)."""
    return F.pixel_shuffle(maps, BLOCK)[..., : size[0], : size[1]]


def enlarged(maps: Tensor, like: Tensor) -> Tensor:
    """Maps (B, K, h, w), interpolated to the height and width of other maps (B, ..., H, W)."""
    return F.interpolate(maps, (like.shape[-2], like.shape[-1]), mode="bilinear", align_corners=False)
