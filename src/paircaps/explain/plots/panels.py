"""Pieces that several pictures are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

WARM, COLD = "#ff7a18", "#2f8fff"
"""What speaks for a class, and what speaks against it."""

INK = "#222222"


def show(axis: Any, image: Tensor) -> None:
    """An image (C, H, W) in 0..1, without ticks, its pixels counted from the corner; one grey channel or colours."""
    height, width = image.shape[-2:]
    pixels = image.detach().cpu().float().clamp(0, 1)
    if len(pixels) not in (1, 3):
        pixels = pixels.mean(0, keepdim=True)  # channels that are no colours
    axis.imshow(
        pixels.permute(1, 2, 0).squeeze(-1).numpy(),
        cmap="gray",
        vmin=0,
        vmax=1,
        extent=(0, width, height, 0),
        interpolation="nearest",
    )
    axis.set(xticks=[], yticks=[], xlim=(0, width), ylim=(height, 0))
    for spine in axis.spines.values():
        spine.set_color("lightgray")


def overlay(axis: Any, values: Tensor, rows: Tensor, columns: Tensor, most: float) -> None:
    """Values of positions (rows, columns) over an image that is shown already, the stronger the less transparent.

    Args:
        axis: with the image.
        values: of each position.
        rows: middles of the positions, in pixels.
        columns: middles of the positions, in pixels.
        most: the value that is shown at full strength.
    """
    from matplotlib.colors import to_rgb

    limits = axis.get_xlim(), axis.get_ylim()
    grid = np.pad(values.detach().cpu().float().numpy(), 1, mode="edge")  # so that it reaches the edges of the image
    colour = np.where(grid[..., None] >= 0, to_rgb(WARM), to_rgb(COLD))
    strength = np.clip(np.abs(grid) / max(most, 1e-12), 0, 1)
    layer = np.concatenate([colour, 0.75 * strength[..., None]], -1)
    axis.imshow(layer, extent=(*_ends(columns), *_ends(rows)[::-1]), interpolation="bilinear", zorder=2)
    axis.set(xlim=limits[0], ylim=limits[1])


def _ends(middles: Tensor) -> tuple[float, float]:
    """Outer edges of cells around evenly spaced middles, with one more cell at either end."""
    first, last = float(middles[0]), float(middles[-1])
    step = (last - first) / (len(middles) - 1) if len(middles) > 1 else 2 * max(first, 1.0)
    return first - 1.5 * step, last + 1.5 * step


def shortened(text: str, most: int = 18) -> str:
    """A name that fits under a small picture, in one line."""
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most - most // 2) :]}"
