"""Overlapping objects in one image, each in a colour of its own."""

from __future__ import annotations

import torch
from torch import Tensor

DIGITS = ("#ff9628", "#288cff", "#3cc864", "#dc50c8")
"""Colours that can be told apart where they meet: orange and blue for two."""


def one_colour_each(parts: Tensor) -> Tensor:
    """Grey images (B, D, 1, H, W) in 0..1 as one colour image (B, 3, H, W); the first two colours add up to white."""
    colours = torch.tensor([[int(code[at : at + 2], 16) for at in (1, 3, 5)] for code in DIGITS]) / 255
    chosen = colours.to(parts)[torch.arange(parts.shape[1]) % len(DIGITS)]  # (D, 3)
    return torch.einsum("bdhw,dc->bchw", parts[:, :, 0], chosen).clamp(0, 1)
