"""Figure of images above their reconstructions."""

from __future__ import annotations

from collections.abc import Sequence

from paircaps._utils.colours import DIGITS
from paircaps._utils.figures import as_png, new_figure
from paircaps.explain.plots.panels import INK, shortened, show
from paircaps.explain.reconstruct import Reconstruction

_COLUMNS = 10


def draw_reconstruction(reconstruction: Reconstruction, names: Sequence[str], classes: Sequence[str]) -> bytes:
    """Draw each image above its reconstruction; several digits of one image have a colour each.

    Args:
        reconstruction: images and their reconstructions.
        names: name of each image.
        classes: names of the network's classes.
    """
    count = len(reconstruction.images)
    columns = min(_COLUMNS, count)
    strips = -(-count // columns)
    figure = new_figure(max(7.0, 0.9 + 1.05 * columns), 0.5 + 2.75 * strips)
    axes = figure.subplots(2 * strips, columns, squeeze=False)
    drawings, errors = reconstruction.in_colours(), reconstruction.error.tolist()
    for axis in axes.flat[:]:
        axis.set_visible(False)
    for number in range(count):
        strip, column = divmod(number, columns)
        above, below = axes[2 * strip, column], axes[2 * strip + 1, column]
        for axis, image in ((above, reconstruction.images[number]), (below, drawings[number])):
            axis.set_visible(True)
            show(axis, image)
        above.set_title(shortened(names[number], 14), fontsize=7, color=INK)
        below.set_xlabel(
            _caption(reconstruction.label[number].tolist(), classes, errors[number]), fontsize=7, labelpad=2
        )
        if column == 0:
            above.set_ylabel("input", fontsize=8)
            below.set_ylabel("reconstruction", fontsize=8)
    several = reconstruction.label.shape[1] > 1
    colours = f": the more active one {_colour_name(0)}, the other {_colour_name(1)}" if several else ""
    figure.suptitle(
        f"Reconstruction from the pose of the capsule{'s' if several else ''} named below{colours}", fontsize=9
    )
    return as_png(figure)


def _caption(labels: list[int], classes: Sequence[str], error: float) -> str:
    """Names of the classes that were drawn, and the squared error."""
    return f"as {' + '.join(shortened(classes[label], 12) for label in labels)}\nerror {error:.1f}"


def _colour_name(number: int) -> str:
    """Name of the colour of the first or second digit."""
    return {DIGITS[0]: "orange", DIGITS[1]: "blue"}[DIGITS[number]]
