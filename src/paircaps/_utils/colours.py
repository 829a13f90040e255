"""Colours of overlapping objects in one image, and of the classes of a mask."""

from __future__ import annotations

import torch
from torch import Tensor

DIGITS = ("#ff9628", "#288cff", "#3cc864", "#dc50c8")
"""Colours that can be told apart where they meet: orange and blue for two."""

CLASSES = ("#ff9628", "#288cff", "#3cc864", "#dc50c8", "#f0e442", "#56b4e9", "#d55e00", "#cccccc", "#7a5cff", "#009e73")
"""Colours of classes in turn: those above first, all of them readable on black for colour-blind people, too."""


def palette(classes: int) -> list[int]:
    """Red, green and blue of each index of a mask: black for 0, then the colours of the classes in turn."""
    codes = ["#000000", *(CLASSES[number % len(CLASSES)] for number in range(classes))]
    return [int(code[at : at + 2], 16) for code in codes for at in (1, 3, 5)]


def one_colour_each(parts: Tensor) -> Tensor:
    """Grey images (B, D, 1, H, W) in 0..1 as one colour image (B, 3, H, W); the first two colours add up to white."""
    colours = torch.tensor([[int(code[at : at + 2], 16) for at in (1, 3, 5)] for code in DIGITS]) / 255
    chosen = colours.to(parts)[torch.arange(parts.shape[1]) % len(DIGITS)]  # (D, 3)
    return torch.einsum("bdhw,dc->bchw", parts[:, :, 0], chosen).clamp(0, 1)
