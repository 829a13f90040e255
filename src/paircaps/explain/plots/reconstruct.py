"""Figure of images with their reconstructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paircaps._utils.colours import DIGITS
from paircaps._utils.figures import SLIDE, SLIDE_WIDTH, as_slide, new_slide
from paircaps.explain.plots.panels import SMALL, TEXT, caption, set_title, shortened, show
from paircaps.explain.reconstruct import Reconstruction

_LINES = 0.85
"""Height of the text above an image and below its reconstruction, in inches."""


def draw_reconstruction(
    reconstruction: Reconstruction,
    names: Sequence[str],
    classes: Sequence[str],
    *,
    format: str = "png",
    width: int = SLIDE_WIDTH,
) -> bytes:
    """Draw each image with its reconstruction; several digits of one image have a colour each.

    Args:
        reconstruction: images and their reconstructions.
        names: name of each image.
        classes: names of the network's classes.
        format: png, svg or pdf.
        width: width in pixels.
    """
    figure = new_slide("compressed")
    count = len(reconstruction.images)
    columns = _columns(count)
    size = TEXT if columns <= 6 else SMALL
    drawings, errors = reconstruction.in_colours(), reconstruction.error.tolist()
    for number, (first, second) in enumerate(_pairs_of_axes(figure, count, columns)):
        show(first, reconstruction.images[number])
        show(second, drawings[number])
        first.set_title(caption(names[number], round(150 / columns)), fontsize=size)
        drawn = " + ".join(shortened(classes[int(label)], 12) for label in reconstruction.label[number].tolist())
        text = f"drawn as {drawn}\nerror {errors[number]:.1f}"
        (second.set_title if count == 1 else second.set_xlabel)(text, fontsize=size)
        if count > 1 and number % columns == 0:
            first.set_ylabel("input", fontsize=TEXT)
            second.set_ylabel("reconstruction", fontsize=TEXT)
    several = reconstruction.label.shape[1] > 1
    colours = f": the more active one {_colour_name(0)}, the other {_colour_name(1)}" if several else ""
    set_title(figure, f"What the decoder draws from the pose of {'two capsules' if several else 'a capsule'}{colours}")
    return as_slide(figure, format, width)


def _columns(count: int) -> int:
    """Number of images in a row, so that images above their reconstructions are largest."""

    def side(columns: int) -> float:
        rows = -(-count // columns)
        return min(SLIDE[0] / columns, (SLIDE[1] - 0.6 - _LINES * rows) / (2 * rows))

    return max(range(1, count + 1), key=side)


def _pairs_of_axes(figure: Any, count: int, columns: int) -> list[tuple[Any, Any]]:
    """Axes of each image and, below it, of its reconstruction; beside it, if there is only one image."""
    if count == 1:
        return [tuple(figure.subplots(1, 2))]
    rows = -(-count // columns)
    axes = figure.subplots(2 * rows, columns, squeeze=False)
    pairs = [(axes[2 * row, column], axes[2 * row + 1, column]) for row in range(rows) for column in range(columns)]
    for pair in pairs[count:]:
        for axis in pair:
            axis.axis("off")
    return pairs[:count]


def _colour_name(number: int) -> str:
    """Name of the colour of the first or second digit."""
    return {DIGITS[0]: "orange", DIGITS[1]: "blue"}[DIGITS[number]]
