"""Figure of a parse tree: the class at the top, its capsules below, patches of the image at the leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from paircaps._utils.figures import SLIDE_WIDTH, as_slide, new_slide
from paircaps.explain.plots.panels import COLD, INK, SMALL, TEXT, WARM, caption, set_title, shortened, show
from paircaps.explain.tree import AgreementTree, Level

_PATCH = 0.34
"""Side of the image patch at a leaf, as a fraction of the image's side."""

_LEVEL_LABELS = 12
"""Most leaves whose shares are written level; those of more would cover each other, and stand upright."""


def draw_tree(
    tree: AgreementTree,
    name: str,
    class_name: str,
    *,
    format: str = "png",
    width: int = SLIDE_WIDTH,
) -> bytes:
    """Draw a parse tree beside its image.

    Args:
        tree: the parse tree.
        name: name of the image.
        class_name: name of the class at the top.
        format: png, svg or pdf.
        width: width in pixels.
    """
    figure = new_slide()
    grid = figure.add_gridspec(1, 2, width_ratios=[1, 3])
    # on the left the image, with numbers where the leaves are
    picture = figure.add_subplot(grid[0, 0])
    show(picture, tree.image)
    _number_leaves(picture, tree.levels[-1], tree.image.shape[-2:])
    picture.set_title(caption(name, 28), fontsize=TEXT)
    # on the right the tree: links first, so that nodes cover their ends
    axis = figure.add_subplot(grid[0, 1])
    axis.axis("off")
    axis.set(xlim=(-0.04, 1.04), ylim=(-0.55, len(tree.levels) - 0.55))
    spots = [_spread(len(level.capsules)) for level in tree.levels]
    for depth in range(1, len(tree.levels)):
        _links(axis, tree.levels[depth].links, spots[depth - 1], spots[depth], len(tree.levels) - 1 - depth)
    for depth, level in enumerate(tree.levels):
        leaf = depth == len(tree.levels) - 1
        _nodes(axis, level, spots[depth], len(tree.levels) - 1 - depth, tree, leaf, class_name if depth == 0 else "")
    set_title(
        figure,
        f"Parse tree of {shortened(class_name, 20)}: the strongest capsules and their shares in its activation; "
        "orange is for it, blue against it",
    )
    return as_slide(figure, format, width)


def _spread(count: int) -> list[float]:
    """Horizontal positions of the nodes of a level, evenly spaced in 0..1."""
    return [(place + 0.5) / count for place in range(count)]


def _links(axis: Any, links: Tensor, above: list[float], below: list[float], height: float) -> None:
    """Draw lines from the nodes of a level at ``height`` to those above it; thicker for a larger share."""
    size = links.abs().max().clamp_min(1e-12)
    for child, parent in links.nonzero().tolist():
        value = (links[child, parent] / size).item()
        axis.plot(
            [below[child], above[parent]],
            [height, height + 1],
            "-",
            color=WARM if value >= 0 else COLD,
            lw=1 + 6 * abs(value),
            alpha=0.35 + 0.5 * abs(value),
            zorder=1,
            solid_capstyle="round",
        )


def _nodes(
    axis: Any, level: Level, spots: list[float], height: float, tree: AgreementTree, leaf: bool, title: str
) -> None:
    """Draw the nodes of a level: patches of the image for leaves, circles for all others."""
    for number, (spot, capsule) in enumerate(zip(spots, level.capsules.tolist(), strict=True)):
        share = level.share[number].item()
        if leaf:
            width = 0.9 / max(8, len(spots))
            inset = axis.inset_axes((spot - width / 2, height - 0.5, width, 0.5), transform=axis.transData)
            _patch(inset, tree.image, level.places[number])
            inset.set_anchor("N")
            if len(spots) <= _LEVEL_LABELS:
                inset.set_xlabel(f"{number + 1}\n{share:+.3g}", fontsize=SMALL, color=INK, labelpad=2)
            else:
                inset.set_xlabel(f"{number + 1}", fontsize=SMALL, color=INK, labelpad=2)
                upright = {"rotation": 90, "ha": "center", "va": "top", "fontsize": SMALL, "color": INK}
                below = {"xy": (0.5, 0), "xycoords": "axes fraction", "xytext": (0, -22), "textcoords": "offset points"}
                inset.annotate(f"{share:+.2g}", **below, **upright)
            continue
        axis.plot([spot], [height], "o", ms=44 if title else 36, mfc="white", mec=INK, mew=1.2, zorder=3)
        inside = title if title and len(title) <= 2 else "" if title else f"#{capsule}"
        axis.text(spot, height, inside, ha="center", va="center", fontsize=TEXT, color=INK, zorder=4)
        label = f"{shortened(title, 20)}: {share:.3g}" if title else f"{share:+.3g}"
        behind = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.85}
        axis.text(spot, height + 0.2, label, ha="center", va="bottom", fontsize=SMALL, color=INK, zorder=4, bbox=behind)


def _patch(axis: Any, image: Tensor, place: Tensor) -> None:
    """Show the part of the image around a position, grey outside the image."""
    show(axis, image)
    half = _PATCH * min(image.shape[-2:]) / 2
    x, y = place.tolist()
    axis.set(xlim=(x - half, x + half), ylim=(y + half, y - half), facecolor="#f1f1f1")


def _in_short(numbers: Sequence[int]) -> str:
    """Rising numbers in a short text, such as "3 · 7–9"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " · ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _number_leaves(axis: Any, leaves: Level, size: Sequence[int]) -> None:
    """Write the numbers of leaves at their positions in the image; numbers of one position share a box."""
    height, width = size
    at: dict[tuple[float, float], list[int]] = {}
    for number, place in enumerate(leaves.places.tolist()):
        at.setdefault((round(place[0], 1), round(place[1], 1)), []).append(number + 1)
    for (x, y), numbers in at.items():
        axis.text(
            min(max(x, 0.04 * width), 0.96 * width),
            min(max(y, 0.04 * height), 0.96 * height),
            _in_short(numbers),
            ha="center",
            va="center",
            fontsize=SMALL,
            color="white",
            bbox={"boxstyle": "round,pad=0.25", "fc": WARM, "ec": "white", "lw": 0.6, "alpha": 0.9},
            clip_on=False,
            zorder=5,
        )
