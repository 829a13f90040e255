"""Input above, what was redrawn below."""

from __future__ import annotations

from collections.abc import Sequence

from paircaps._utils.colours import DIGITS
from paircaps._utils.figures import as_png, new_figure
from paircaps.explain.plots.panels import INK, shortened, show
from paircaps.explain.reconstruct import Reconstruction

_COLUMNS = 10


def draw_reconstruction(seen: Reconstruction, names: Sequence[str], classes: Sequence[str]) -> bytes:
    """A sheet: each image over its reconstruction, with several digits in one colour each.

    Args:
        seen: what was redrawn.
        names: of the images.
        classes: of the network.
    """
    count = len(seen.images)
    columns = min(_COLUMNS, count)
    strips = -(-count // columns)
    figure = new_figure(max(7.0, 0.9 + 1.05 * columns), 0.5 + 2.75 * strips)
    axes = figure.subplots(2 * strips, columns, squeeze=False)
    drawn, errors = seen.in_colours(), seen.error.tolist()
    for axis in axes.flat[:]:
        axis.set_visible(False)
    for number in range(count):
        strip, column = divmod(number, columns)
        above, below = axes[2 * strip, column], axes[2 * strip + 1, column]
        for axis, image in ((above, seen.images[number]), (below, drawn[number])):
            axis.set_visible(True)
            show(axis, image)
        above.set_title(shortened(names[number], 14), fontsize=7, color=INK)
        below.set_xlabel(_caption(seen.label[number].tolist(), classes, errors[number]), fontsize=7, labelpad=2)
        if column == 0:
            above.set_ylabel("input", fontsize=8)
            below.set_ylabel("redrawn", fontsize=8)
    several = seen.label.shape[1] > 1
    colours = f": the more active one {_named(0)}, the other {_named(1)}" if several else ""
    figure.suptitle(f"Redrawn from the pose of the capsule{'s' if several else ''} named below{colours}", fontsize=9)
    return as_png(figure)


def _caption(labels: list[int], classes: Sequence[str], error: float) -> str:
    return f"as {' + '.join(shortened(classes[label], 12) for label in labels)}\nerror {error:.1f}"


def _named(number: int) -> str:
    return {DIGITS[0]: "orange", DIGITS[1]: "blue"}[DIGITS[number]]
