"""Figure of the equivariance of several networks: R² of their poses, and accuracy under warps."""

from __future__ import annotations

from typing import Any

from paircaps._utils.figures import as_png, new_figure
from paircaps.data.synthetic.poses import POSE

COLOURS = ("#e07b1a", "#2f6fb2", "#3a9d5d", "#6b7280", "#a855a8", "#b23a48")
_LOWEST = -0.2
"""Lower end of the axis of R²; bars of lower values are cut off there."""

_UNITS = {"x": "pixels to either side", "y": "pixels up or down", "rotation": "degrees", "scale": "factor", "shear": ""}


def draw_equivariance(result: dict[str, Any]) -> bytes:
    """Draw bars of R², and for each kind of warp a panel of accuracy against its size.

    Args:
        result: what ``paircaps equivariance`` writes as JSON.
    """
    figure = new_figure(11, 6.2)
    axes = figure.subplots(2, 3)
    _bars(axes[0, 0], result["networks"])
    for axis, kind in zip(list(axes.flat)[1:], POSE, strict=True):
        for number, row in enumerate(result["networks"]):
            sizes, accuracy = zip(*row["curves"][kind], strict=True)
            axis.plot(
                sizes,
                [100 * value for value in accuracy],
                marker="o",
                ms=3,
                lw=1.6,
                color=COLOURS[number % len(COLOURS)],
            )
        unit = f", {_UNITS[kind]}" if _UNITS[kind] else ""
        axis.set(ylim=(0, 103), ylabel="accuracy, %")
        axis.set_title(f"{kind}{unit}", fontsize=9)
        _style(axis)
        axis.grid(alpha=0.3)
    # one legend for all panels
    handles = [axes[0, 1].lines[number] for number in range(len(result["networks"]))]
    figure.legend(
        handles,
        [row["name"] for row in result["networks"]],
        loc="outside lower center",
        ncols=4,
        fontsize=9,
        frameon=False,
    )
    figure.suptitle(
        f"{result['data']['name']}: how well poses follow the world, and accuracy against the size of each warp",
        fontsize=11,
    )
    return as_png(figure)


def _bars(axis: Any, networks: list[dict[str, Any]]) -> None:
    """Draw R² of every network for each part of the pose."""
    width = 0.8 / len(networks)
    for number, row in enumerate(networks):
        places = [place + (number + 0.5) * width - 0.4 for place in range(len(POSE))]
        heights = [max(row["r2"][kind], _LOWEST) for kind in POSE]
        axis.bar(places, heights, 0.92 * width, color=COLOURS[number % len(COLOURS)])
    axis.set_xticks(range(len(POSE)), POSE)
    axis.axhline(0, color="#333333", linewidth=0.8)
    axis.set(ylim=(_LOWEST, 1), ylabel="R²")
    axis.set_title("read off the pose of the right capsule", fontsize=9)
    axis.grid(alpha=0.3, axis="y")
    _style(axis)


def _style(axis: Any) -> None:
    """Set small labels and remove the upper and right frame."""
    axis.tick_params(labelsize=8)
    axis.yaxis.label.set_fontsize(8)
    axis.spines[["top", "right"]].set_visible(False)
