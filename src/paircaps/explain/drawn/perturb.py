"""A row for each dimension of a pose, drawn as it goes through its range."""

from __future__ import annotations

from paircaps._figures import as_png, new_figure
from paircaps.explain.drawn.panels import WARM, shortened, show
from paircaps.explain.perturb import Perturbation

MOST_ROWS = 16


def draw_perturbation(seen: Perturbation, number: int, name: str, class_name: str) -> bytes:
    """A sheet for one of the images: a row a dimension, a column a step; framed is the step nearest to its own value.

    Of a pose with more than 16 dimensions those are shown that change the drawing most.

    Args:
        seen: what was drawn.
        number: of the image.
        name: of the image.
        class_name: of the capsule.
    """
    drawings, values, pose = seen.drawings[number], seen.values[number], seen.pose[number]
    effect = (drawings[:, -1] - drawings[:, 0]).square().flatten(1).sum(1)
    shown = effect.topk(min(MOST_ROWS, len(effect))).indices.sort().values.tolist()
    steps = drawings.shape[1]
    figure = new_figure(2.9 + 0.62 * steps, 0.6 + 0.66 * len(shown))
    left, right = figure.subfigures(1, 2, width_ratios=[1.1, 1.6 + 0.62 * steps])
    axes = right.subplots(len(shown), steps, squeeze=False)
    for row, dimension in zip(axes, shown, strict=True):
        nearest = int((values[dimension] - pose[dimension]).abs().argmin())
        for step, axis in enumerate(row):
            show(axis, drawings[dimension, step])
            if step == nearest:
                for spine in axis.spines.values():
                    spine.set(color=WARM, linewidth=2)
        low, high = values[dimension, 0].item(), values[dimension, -1].item()
        row[0].set_ylabel(
            f"{dimension + 1}\n{low:+.2f} to {high:+.2f}", fontsize=6.5, rotation=0, ha="right", va="center", labelpad=4
        )
    beside = zip(left.subplots(2, 1), (seen.images, seen.unchanged), ("input", "redrawn"), strict=True)
    for axis, image, title in beside:
        show(axis, image[number])
        axis.set_title(title, fontsize=8, pad=3)
    left_out = f"; {len(shown)} of {len(effect)} dimensions" if len(shown) < len(effect) else ""
    figure.suptitle(
        f"{shortened(name, 32)}: each dimension of the pose of {shortened(class_name, 20)} through its range{left_out}",
        fontsize=9,
    )
    return as_png(figure)
