"""Figure of masks: images, true masks and found masks, a colour for each class of an image."""

from __future__ import annotations

from collections.abc import Sequence

from paircaps._utils.figures import SLIDE_WIDTH, as_slide, new_slide
from paircaps.explain.masks import FoundMasks
from paircaps.explain.plots.panels import SMALL, TEXT, caption, set_title, shortened, show

_COLOURS = ("orange", "blue", "green", "pink")
"""Names of the colours of an image's masks, ``paircaps._utils.colours.DIGITS``."""


def draw_masks(
    found: FoundMasks,
    names: Sequence[str],
    classes: Sequence[str],
    *,
    format: str = "png",
    width: int = SLIDE_WIDTH,
) -> bytes:
    """Draw each image above its true masks, if they are known, and its found masks; where two overlap it is white.

    Args:
        found: images and their masks.
        names: name of each image.
        classes: names of the network's classes.
        format: png, svg or pdf.
        width: width in pixels.
    """
    figure = new_slide("compressed")
    true, ious = found.true_in_colours(), found.iou
    rows = [("image", found.images), ("found masks", found.found_in_colours())]
    if true is not None:
        rows.insert(1, ("true masks", true))
    count = len(found.images)
    axes = figure.subplots(len(rows), count, squeeze=False)
    size = TEXT if count <= 6 else SMALL
    for row, (title, pictures) in enumerate(rows):
        for number in range(count):
            show(axes[row, number], pictures[number])
        axes[row, 0].set_ylabel(title, fontsize=TEXT)
    for number in range(count):
        axes[0, number].set_title(caption(names[number], round(120 / count)), fontsize=size)
        shown, chosen = (
            [shortened(classes[int(label)], 12) for label in of[number]] for of in (found.label, found.chosen)
        )
        said = [f"most active {' + '.join(chosen)}"]
        if ious is not None:
            said.append(f"IoU {100 * float(ious[number]):.0f} %")
        # the name of an image may give its classes in another order, so each colour is named
        colours = [f"{colour} {name}" for colour, name in zip(_COLOURS, shown, strict=False)]
        if true is not None:
            axes[1, number].set_xlabel("\n".join(colours), fontsize=size)
        elif colours != [f"{_COLOURS[0]} {chosen[0]}"]:  # a single class is the most active one
            said = [*colours, *said]
        axes[-1, number].set_xlabel("\n".join(said), fontsize=size)
    both = "; where two overlap, it is white" if found.label.shape[1] > 1 else ""
    set_title(figure, f"Which pixel belongs to which class{both}")
    return as_slide(figure, format, width)
