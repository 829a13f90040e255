"""Parts that several figures share: sizes of text, an image, an overlay of values, a shortened name."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from paircaps._utils.text_tables import shortened as shortened_text

WARM, COLD = "#ff7a18", "#2f8fff"
"""Colours of values for a class and of values against it."""

INK = "#222222"
"""Colour of text."""

TITLE, TEXT, SMALL = 17, 13, 11
"""Sizes of text in points, on a slide 13⅓ inches wide."""

_TITLE_LETTERS = 98
"""Letters of a title that fit on one line."""


def show(axis: Any, image: Tensor) -> None:
    """Show an image without ticks, with axes in pixels from its upper left corner.

    Args:
        axis: where to draw.
        image: (C, H, W) in 0..1; of other than one or three channels, their mean is shown.
    """
    height, width = image.shape[-2:]
    pixels = image.detach().cpu().float().clamp(0, 1)
    if len(pixels) not in (1, 3):
        pixels = pixels.mean(0, keepdim=True)  # channels that are not colours
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
    """Draw values of positions over an image that is shown already; larger values are less transparent.

    Args:
        axis: axis that shows the image.
        values: value of each position, (rows, columns).
        rows: centres of the rows, in pixels.
        columns: centres of the columns, in pixels.
        most: absolute value that is drawn at full strength.
    """
    from matplotlib.colors import to_rgb

    limits = axis.get_xlim(), axis.get_ylim()
    grid = np.pad(values.detach().cpu().float().numpy(), 1, mode="edge")  # so that it reaches the edges of the image
    colour = np.where(grid[..., None] >= 0, to_rgb(WARM), to_rgb(COLD))
    strength = np.clip(np.abs(grid) / max(most, 1e-12), 0, 1)
    layer = np.concatenate([colour, 0.75 * strength[..., None]], -1)
    axis.imshow(layer, extent=(*_ends(columns), *_ends(rows)[::-1]), interpolation="bilinear", zorder=2)
    axis.set(xlim=limits[0], ylim=limits[1])


def _ends(centres: Tensor) -> tuple[float, float]:
    """Outer edges of cells around evenly spaced centres, with one more cell at either end."""
    first, last = float(centres[0]), float(centres[-1])
    step = (last - first) / (len(centres) - 1) if len(centres) > 1 else 2 * max(first, 1.0)
    return first - 1.5 * step, last + 1.5 * step


def shortened(text: str, most: int = 18) -> str:
    """Cut out the middle of a name longer than ``most`` characters; control characters become spaces."""
    return shortened_text(" ".join("".join(sign if sign.isprintable() else " " for sign in text).split()), most)


def set_title(figure: Any, text: str) -> None:
    """Write the title of a slide; a long one is smaller."""
    figure.suptitle(text, fontsize=min(TITLE, TITLE * _TITLE_LETTERS / len(text)))


def caption(name: str, most: int) -> str:
    """Name of an image for a caption, with a line for each part between commas, each of ``most`` characters at most."""
    return "\n".join(shortened(part, most) for part in name.split(", ", 1))
