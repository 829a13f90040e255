"""Figure of the agreement on a class, drawn over the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from paircaps._utils.figures import SLIDE_WIDTH, as_slide, new_slide
from paircaps.explain.agreement import Agreement
from paircaps.explain.plots.panels import COLD, SMALL, TEXT, WARM, caption, overlay, set_title, shortened, show

_MOST_ROWS = 2
"""Most images whose panels are drawn in rows."""


def draw_agreement(
    agreement: Agreement,
    names: Sequence[str],
    classes: Sequence[str],
    *,
    format: str = "png",
    width: int = SLIDE_WIDTH,
) -> bytes:
    """Draw panels of each image: the image, shares over it, the coupling if there is one, and the strongest pairs.

    The panels of an image are a row, or with more than two images a column.

    Args:
        agreement: shares, couplings and pairs of the images.
        names: name of each image.
        classes: names of the network's classes.
        format: png, svg or pdf.
        width: width in pixels.
    """
    figure = new_slide("compressed")
    count, coupled = len(agreement.images), agreement.coupling is not None
    titles = ["input", "share", *(["coupling"] if coupled else []), "strongest pairs"]
    in_rows = count <= _MOST_ROWS
    axes = figure.subplots(*((count, len(titles)) if in_rows else (len(titles), count)), squeeze=False)
    for index, panels in enumerate(axes if in_rows else axes.T):
        for axis in panels:
            show(axis, agreement.images[index])
        _shares(panels[1], agreement, index)
        if agreement.coupling is not None:
            _coupling(panels[2], agreement, agreement.coupling[index])
        _pairs(panels[-1], agreement, index)
        text = f"{caption(names[index], 22)}\nagreement on {shortened(classes[int(agreement.label[index])], 10)}"
        (panels[0].set_xlabel if in_rows else panels[0].set_title)(text, fontsize=SMALL)
    for axis, title in zip(axes[0] if in_rows else axes[:, 0], titles, strict=True):
        (axis.set_title if in_rows else axis.set_ylabel)(title, fontsize=TEXT)
    set_title(figure, "Where the agreement on a class comes from: orange is for it, blue against it")
    return as_slide(figure, format, width)


def _shares(axis: Any, agreement: Agreement, index: int) -> None:
    """Draw the shares of all positions, and write their range and sum below."""
    values = agreement.map[index]
    overlay(axis, values, agreement.rows, agreement.columns, values.abs().max().item())
    total = agreement.activation[index].item()
    axis.set_xlabel(f"{_range(values, '+')}\nsum {total:.2g}", fontsize=SMALL)


def _range(values: Tensor, sign: str = "") -> str:
    """Smallest and largest of some values, as text; one that is a thousand times smaller than the other is 0."""
    ends = values.min().item(), values.max().item()
    least, most = (f"{end:{sign}.2g}" if abs(end) > 1e-3 * max(map(abs, ends)) else "0" for end in ends)
    return f"{least} to {most}".replace("-", "−")


def _coupling(axis: Any, agreement: Agreement, values: Tensor) -> None:
    """Draw the coupling of all positions with the class."""
    overlay(axis, values, agreement.rows, agreement.columns, values.max().item())
    axis.set_xlabel(_range(values), fontsize=SMALL)


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
    axis.set_xlabel(f"{len(strength)} of {children * (children - 1) // 2:,}", fontsize=SMALL)
