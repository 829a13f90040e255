"""Figure of reconstructions with one pose dimension changed at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paircaps._utils.figures import as_png, new_figure
from paircaps.explain.perturb import Perturbation
from paircaps.explain.plots.panels import INK, WARM, shortened, show

MOST_ROWS = 16
"""Dimensions that are drawn at most."""

_GAP = 0.1
"""Gap between two drawings, as a fraction of a drawing's side."""


def draw_perturbation(perturbation: Perturbation, index: int, name: str, class_name: str) -> bytes:
    """Draw a sheet for one image, with a row per dimension and a column per value.

    The value nearest to the unchanged one has a frame. Of a pose with more than 16 dimensions, those that change the
    drawing most are shown.

    Args:
        perturbation: drawings of several images.
        index: which of these images.
        name: name of the image.
        class_name: name of the class whose capsule was changed.
    """
    drawings, values, pose = perturbation.drawings[index], perturbation.values[index], perturbation.pose[index]
    effect = (drawings[:, -1] - drawings[:, 0]).square().flatten(1).sum(1)
    shown = effect.topk(min(MOST_ROWS, len(effect))).indices.sort().values
    steps = drawings.shape[1]
    # on the right a grid of drawings, on the left the image and its reconstruction
    figure = new_figure(2.9 + 0.62 * steps, 0.6 + 0.66 * len(shown))
    left, right = figure.subfigures(1, 2, width_ratios=[1.1, 1.6 + 0.62 * steps])
    axis = right.subplots()
    _grid(axis, drawings[shown])
    nearest = (values[shown] - pose[shown].unsqueeze(-1)).abs().argmin(-1).tolist()
    height, width = drawings.shape[-2:]
    _labels(axis, (height, width), shown.tolist(), values[shown], nearest)
    beside = zip(
        left.subplots(2, 1), (perturbation.images, perturbation.unchanged), ("input", "reconstruction"), strict=True
    )
    for place, image, title in beside:
        show(place, image[index])
        place.set_title(title, fontsize=8, pad=3)
    left_out = f"; {len(shown)} of {len(effect)} dimensions" if len(shown) < len(effect) else ""
    figure.suptitle(
        f"{shortened(name, 32)}: each dimension of the pose of {shortened(class_name, 20)} through its range{left_out}",
        fontsize=9,
    )
    return as_png(figure)


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
    names = [
        f"{dimension + 1}\n{low:+.2f} to {high:+.2f}"
        for dimension, low, high in zip(dimensions, values[:, 0].tolist(), values[:, -1].tolist(), strict=True)
    ]
    centres = [row * _pitch(height) + height / 2 for row in range(len(dimensions))]
    axis.set_yticks(centres, names, fontsize=6.5, color=INK)
    axis.tick_params(length=0)


def _pitch(length: int) -> int:
    """Pixels from the beginning of one drawing to that of the next."""
    return length + max(1, round(_GAP * length))
