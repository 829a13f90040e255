"""Figure of the agreement on a class, drawn over the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from paircaps._utils.figures import as_png, new_figure
from paircaps.explain.agreement import Agreement
from paircaps.explain.plots.panels import COLD, INK, WARM, overlay, shortened, show


def draw_agreement(agreement: Agreement, names: Sequence[str], classes: Sequence[str]) -> bytes:
    """Draw a row per image: the image, shares over it, the coupling if there is one, and the strongest pairs.

    Args:
        agreement: shares, couplings and pairs of the images.
        names: name of each image.
        classes: names of the network's classes.
    """
    coupled = agreement.coupling is not None
    titles = ["input", "share in the activation", *(["coupling"] if coupled else []), "strongest pairs"]
    figure = new_figure(2.05 * len(titles) + 0.6, 0.75 + 2.15 * len(agreement.images))
    axes = figure.subplots(len(agreement.images), len(titles), squeeze=False)
    for index, row in enumerate(axes):
        for axis in row:
            show(axis, agreement.images[index])
        _shares(row[1], agreement, index)
        if agreement.coupling is not None:
            _coupling(row[2], agreement, agreement.coupling[index])
        _pairs(row[-1], agreement, index)
        label = shortened(classes[int(agreement.label[index])], 16)
        row[0].set_ylabel(f"{shortened(names[index], 20)}\nclass: {label}", fontsize=8, color=INK)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=9)
    figure.suptitle("Where the agreement on a class comes from; orange is for it, blue against it", fontsize=10)
    return as_png(figure)


def _shares(axis: Any, agreement: Agreement, index: int) -> None:
    """Draw the shares of all positions, and write their range and sum below."""
    values = agreement.map[index]
    overlay(axis, values, agreement.rows, agreement.columns, values.abs().max().item())
    least, most = values.min().item(), values.max().item()
    axis.set_xlabel(f"{least:+.3g} to {most:+.3g}, sum {agreement.activation[index].item():.3g}", fontsize=7)


def _coupling(axis: Any, agreement: Agreement, values: Tensor) -> None:
    """Draw the coupling of all positions with the class."""
    overlay(axis, values, agreement.rows, agreement.columns, values.max().item())
    axis.set_xlabel(f"{values.min().item():.3g} to {values.max().item():.3g}", fontsize=7)


def _pairs(axis: Any, agreement: Agreement, index: int) -> None:
    """Draw a line between the children of each pair, or a ring where both are at the same position."""
    places, strength = agreement.places[index], agreement.strength[index]
    strongest = max([*strength.abs().tolist(), 1e-12])
    side, children = min(agreement.images.shape[-2:]), len(places)
    for pair, value in zip(agreement.pairs[index].tolist(), strength.tolist(), strict=True):
        (x0, y0), (x1, y1) = places[pair[0]].tolist(), places[pair[1]].tolist()
        colour, weight = (WARM if value >= 0 else COLD), abs(value) / strongest
        if abs(x0 - x1) + abs(y0 - y1) < 0.02 * side:
            axis.plot([x0], [y0], "o", ms=9, mfc="none", mec=colour, mew=0.8 + 1.6 * weight, alpha=0.85, clip_on=False)
        else:
            axis.plot([x0, x1], [y0, y1], "-", color=colour, lw=0.6 + 2.2 * weight, alpha=0.85, clip_on=False)
            axis.plot([x0, x1], [y0, y1], "o", ms=3, color=colour, clip_on=False)
    axis.set_xlabel(f"the {len(strength)} strongest of {children * (children - 1) // 2:,} pairs", fontsize=7)
