"""Figure of reconstructions with one pose dimension changed at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paircaps._utils.figures import SLIDE, SLIDE_WIDTH, as_slide, new_slide
from paircaps.explain.perturb import Perturbation
from paircaps.explain.plots.panels import INK, SMALL, TEXT, WARM, set_title, shortened, show

MOST_ROWS = 16
"""Dimensions that are drawn at most."""

_LABELS, _WIDEST = 2.5, 0.77
"""Width of the labels in inches; most of a slide's width that the drawings and their labels take."""

_GAP = 0.1
"""Gap between two drawings, as a fraction of a drawing's side."""


def draw_perturbation(
    perturbation: Perturbation,
    index: int,
    name: str,
    class_name: str,
    *,
    dimensions: Sequence[int] | None = None,
    format: str = "png",
    width: int = SLIDE_WIDTH,
) -> bytes:
    """Draw a sheet for one image, with a row per dimension and a column per value.

    The value nearest to the unchanged one has a frame.

    Args:
        perturbation: drawings of several images.
        index: which of these images.
        name: name of the image.
        class_name: name of the class whose capsule was changed.
        dimensions: dimensions to show, counted from 0, 16 at most; None for all, or where these are more than 16, for
            those that change the drawing most.
        format: png, svg or pdf.
        width: width in pixels.
    """
    drawings, values, pose = perturbation.drawings[index], perturbation.values[index], perturbation.pose[index]
    shown = _strongest(drawings) if dimensions is None else torch.tensor(list(dimensions))
    if not 0 < len(shown) <= MOST_ROWS or int(shown.min()) < 0 or int(shown.max()) >= len(pose):
        raise ValueError(f"dimensions must be 1 to {MOST_ROWS} numbers from 0 to {len(pose) - 1}, got {dimensions}")
    # on the right a grid of drawings, on the left the image and its reconstruction
    figure = new_slide()
    room = _room_of_grid(len(shown), *drawings.shape[1:])
    left, right = figure.subfigures(1, 2, width_ratios=[SLIDE[0] - room, room])
    axis = right.subplots()
    _grid(axis, drawings[shown])
    nearest = (values[shown] - pose[shown].unsqueeze(-1)).abs().argmin(-1).tolist()
    image_height, image_width = drawings.shape[-2:]
    _labels(axis, (image_height, image_width), shown.tolist(), values[shown], nearest)
    beside = zip(
        left.subplots(2, 1), (perturbation.images, perturbation.unchanged), ("input", "reconstruction"), strict=True
    )
    for place, image, title in beside:
        show(place, image[index])
        place.set_title(title, fontsize=TEXT)
    left_out = f" ({len(shown)} of {len(pose)})" if len(shown) < len(pose) else ""
    whose = shortened(class_name, 20)
    set_title(figure, f"{shortened(name, 40)}: dimensions of the pose of {whose}{left_out}, each through its range")
    return as_slide(figure, format, width)


def _room_of_grid(rows: int, steps: int, channels: int, height: int, width: int) -> float:
    """Width of the grid and its labels in inches: what its height leaves it, as far as the slide goes."""
    cell = (SLIDE[1] - 0.8) / (rows * _pitch(height))  # side of a pixel
    return min(_LABELS + cell * steps * _pitch(width), _WIDEST * SLIDE[0])


def _strongest(drawings: Tensor) -> Tensor:
    """Dimensions that change the drawings (K, S, C, H, W) most, as many as a sheet takes, in their order."""
    effect = (drawings[:, -1] - drawings[:, 0]).square().flatten(1).sum(1)
    return effect.topk(min(MOST_ROWS, len(effect))).indices.sort().values


def _grid(axis: Any, drawings: Tensor) -> None:
    """Show all drawings (rows, steps, C, H, W) as one image, since hundreds of axes take many seconds."""
    rows, steps, channels, height, width = drawings.shape
    across, down = _pitch(width), _pitch(height)
    page = torch.ones(channels, rows * down, steps * across)
    for row in range(rows):
        for step in range(steps):
            top, begin = row * down, step * across
            page[:, top : top + height, begin : begin + width] = drawings[row, step]
    show(axis, page)
    axis.spines[:].set_visible(False)


def _labels(axis: Any, size: tuple[int, int], dimensions: list[int], values: Tensor, nearest: list[int]) -> None:
    """Frame the drawings nearest to the unchanged pose, and label rows with dimension and range."""
    from matplotlib.patches import Rectangle

    height, width = size
    for row, step in enumerate(nearest):
        corner = (step * _pitch(width), row * _pitch(height))
        axis.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=WARM, linewidth=2.5, clip_on=False))
    separator = "\n" if len(dimensions) <= MOST_ROWS // 2 else ":  "
    names = [
        f"dimension {dimension + 1}{separator}{_signed(low)} to {_signed(high)}"
        for dimension, low, high in zip(dimensions, values[:, 0].tolist(), values[:, -1].tolist(), strict=True)
    ]
    centres = [row * _pitch(height) + height / 2 for row in range(len(dimensions))]
    axis.set_yticks(centres, names, fontsize=SMALL, color=INK)
    axis.tick_params(length=0)


def _signed(value: float) -> str:
    """A number of two decimals with its sign; none for zero."""
    text = f"{value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text.replace("-", "−")


def _pitch(length: int) -> int:
    """Pixels from the beginning of one drawing to that of the next."""
    return length + max(1, round(_GAP * length))
