"""A parse tree: the class on top, the capsules it is made of below, the picture's own patches at the leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from paircaps._utils.figures import as_png, new_figure
from paircaps.explain.plots.panels import COLD, INK, WARM, shortened, show
from paircaps.explain.tree import AgreementTree, Level

_PATCH = 0.34
"""Side of a leaf's patch, as a part of the image's."""


def draw_tree(seen: AgreementTree, name: str, class_name: str) -> bytes:
    """Draw it.

    Args:
        seen: the tree.
        name: of the image.
        class_name: at the top.
    """
    leaves = len(seen.levels[-1].capsules)
    figure = new_figure(max(7.5, 0.62 * leaves + 2.6), 1.75 * len(seen.levels) + 1.0)
    grid = figure.add_gridspec(1, 2, width_ratios=[1.9, max(5.0, 0.62 * leaves)])
    picture = figure.add_subplot(grid[0, 0])
    show(picture, seen.image)
    _number_leaves(picture, seen.levels[-1], seen.image.shape[-2:])
    picture.set_title(shortened(name, 24), fontsize=8)
    axis = figure.add_subplot(grid[0, 1])
    axis.axis("off")
    axis.set(xlim=(-0.04, 1.04), ylim=(-0.55, len(seen.levels) - 0.55))
    spots = [_spread(len(level.capsules)) for level in seen.levels]
    for depth in range(1, len(seen.levels)):
        _links(axis, seen.levels[depth].links, spots[depth - 1], spots[depth], len(seen.levels) - 1 - depth)
    for depth, level in enumerate(seen.levels):
        leaf = depth == len(seen.levels) - 1
        _nodes(axis, level, spots[depth], len(seen.levels) - 1 - depth, seen, leaf, class_name if depth == 0 else "")
    figure.suptitle(
        f"What {shortened(class_name, 20)} is made of: the strongest capsules of each layer, and their shares in it\n"
        "orange speaks for it, blue against it",
        fontsize=9,
    )
    return as_png(figure)


def _spread(count: int) -> list[float]:
    return [(place + 0.5) / count for place in range(count)]


def _links(axis: Any, links: Tensor, above: list[float], below: list[float], height: float) -> None:
    size = links.abs().max().clamp_min(1e-12)
    for child, parent in links.nonzero().tolist():
        value = (links[child, parent] / size).item()
        axis.plot(
            [below[child], above[parent]],
            [height, height + 1],
            "-",
            color=WARM if value >= 0 else COLD,
            lw=0.5 + 3.5 * abs(value),
            alpha=0.35 + 0.5 * abs(value),
            zorder=1,
            solid_capstyle="round",
        )


def _nodes(
    axis: Any, level: Level, spots: list[float], height: float, seen: AgreementTree, leaf: bool, title: str
) -> None:
    for number, (spot, capsule) in enumerate(zip(spots, level.capsules.tolist(), strict=True)):
        share = level.share[number].item()
        if leaf:
            width = 0.9 / max(8, len(spots))
            inset = axis.inset_axes((spot - width / 2, height - 0.5, width, 0.5), transform=axis.transData)
            _patch(inset, seen.image, level.places[number])
            inset.set_anchor("N")
            inset.set_xlabel(f"{number + 1}\n{share:+.3g}", fontsize=6.5, color=INK, labelpad=2)
            continue
        axis.plot([spot], [height], "o", ms=26 if title else 22, mfc="white", mec=INK, mew=1.2, zorder=3)
        inside = title if title and len(title) <= 2 else "" if title else f"#{capsule}"
        axis.text(spot, height, inside, ha="center", va="center", fontsize=8, color=INK, zorder=4)
        label = f"{shortened(title, 20)}: {share:.3g}" if title else f"{share:+.3g}"
        behind = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.85}
        axis.text(spot, height + 0.2, label, ha="center", va="bottom", fontsize=7.5, color=INK, zorder=4, bbox=behind)


def _patch(axis: Any, image: Tensor, place: Tensor) -> None:
    """The picture around a place, grey where it ends."""
    show(axis, image)
    half = _PATCH * min(image.shape[-2:]) / 2
    x, y = place.tolist()
    axis.set(xlim=(x - half, x + half), ylim=(y + half, y - half), facecolor="#f1f1f1")


def _number_leaves(axis: Any, leaves: Level, size: Sequence[int]) -> None:
    """Numbers where leaves look, at the edge a little inside; those of one place side by side."""
    height, width = size
    at: dict[tuple[float, float], list[int]] = {}
    for number, place in enumerate(leaves.places.tolist()):
        at.setdefault((round(place[0], 1), round(place[1], 1)), []).append(number + 1)
    for (x, y), numbers in at.items():
        axis.text(
            min(max(x, 0.04 * width), 0.96 * width),
            min(max(y, 0.04 * height), 0.96 * height),
            " · ".join(map(str, numbers)),
            ha="center",
            va="center",
            fontsize=6.5,
            color="white",
            bbox={"boxstyle": "round,pad=0.25", "fc": WARM, "ec": "white", "lw": 0.6, "alpha": 0.9},
            clip_on=False,
            zorder=5,
        )
