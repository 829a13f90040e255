"""Figures of benchmark results, each the content of a PNG file."""

from __future__ import annotations

import math
from typing import Any

from paircaps._utils.figures import as_png, new_figure

PLAIN, OURS, FLOOR = "#b0b7c3", "#2f6fb2", "#6b7280"


def draw_table1(result: dict[str, Any]) -> bytes:
    """Draw bars of milliseconds per batch, in a panel for each network and dataset."""
    figure = new_figure(11, 7)
    for axis, table in zip(figure.subplots(2, 2).flat, result["tables"], strict=True):
        rows = table["rows"][::-1]
        _bars(axis, [row["case"] for row in rows], rows)
        floor = next(row["median"] for row in rows if row["case"] == "floor")
        axis.axvline(floor, color=FLOOR, linewidth=0.8, linestyle=":")
        axis.set_title(f"{table['model']}, {table['data']}", fontsize=10)
        axis.set_xlabel(f"ms a batch of {result['batch']}, median and quartiles", fontsize=8)
    figure.suptitle("Inference by routing; dotted: the network without votes and routing", fontsize=11)
    return as_png(figure)


def draw_layer(result: dict[str, Any]) -> bytes:
    """Draw bars of milliseconds of a forward and backward pass, in a panel for each capsule layer."""
    shapes = result["shapes"]
    figure = new_figure(11, 2.6 * -(-len(shapes) // 2) + 0.4)
    axes = list(figure.subplots(-(-len(shapes) // 2), 2, squeeze=False).flat)
    for axis, shape in zip(axes, shapes, strict=False):
        rows = shape["rows"][::-1]
        _bars(axis, [row["case"] for row in rows], [row["training"] for row in rows])
        axis.set_title(shape["title"], fontsize=9)
        axis.set_xlabel("ms forward and backward", fontsize=8)
    for axis in axes[len(shapes) :]:
        axis.set_visible(False)
    figure.suptitle(f"Capsule layers alone, {result['batch']} images; grey: all votes held at once", fontsize=11)
    return as_png(figure)


def _bars(axis: Any, names: list[str], timings: list[dict[str, Any]]) -> None:
    """Draw a horizontal bar per case, with quartiles and the median as text."""
    medians = [timing["median"] for timing in timings]
    spread = [
        [max(0.0, t["median"] - t["low"]) for t in timings],
        [max(0.0, t["high"] - t["median"]) for t in timings],
    ]
    colours = [PLAIN if name.endswith("plain") else FLOOR if name == "floor" else OURS for name in names]
    axis.barh(names, medians, xerr=spread, color=colours, error_kw={"linewidth": 0.8, "ecolor": "#333"})
    reach = max(t["high"] for t in timings)
    axis.set_xlim(0, 1.2 * reach)
    for place, timing in enumerate(timings):
        axis.text(timing["high"] + 0.015 * reach, place, f"{timing['median']:,.4g}", va="center", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def draw_scaling(result: dict[str, Any]) -> bytes:
    """Draw lines of time and memory against the number of children and of classes."""
    figure = new_figure(11, 7.5)
    grid = figure.subplots(2, 2)
    for row, axis_name in zip(grid, ("children", "classes"), strict=True):
        points = result[axis_name]
        _lines(row[0], points, axis_name, lambda case: case["training"]["median"], "ms forward and backward")
        _lines(row[1], points, axis_name, _extra_megabytes, "peak extra memory in training, MB")
    figure.suptitle(f"FM agreement, {result['batch']} images, vector votes of 8 → 16", fontsize=11)
    return as_png(figure)


def _extra_megabytes(case: dict[str, Any]) -> float | None:
    return None if case["extra_bytes"] is None else case["extra_bytes"] / 1e6


def _lines(axis: Any, points: list[dict[str, Any]], name: str, value: Any, title: str) -> None:
    """Draw one panel with a line for plain votes, for tiles and for the kernel, both axes logarithmic.

    Args:
        axis: where to draw.
        points: measurements along one axis.
        name: key of the horizontal value, ``"children"`` or ``"classes"``.
        value: function from a case to its vertical value, or None.
        title: title of the panel.
    """
    for case, colour in (("plain", PLAIN), ("tiles", FLOOR), ("kernel", OURS)):
        there = [(point[name], value(point["cases"][case])) for point in points if case in point["cases"]]
        there = [(x, y) for x, y in there if y]
        if there:
            axis.plot(*zip(*there, strict=True), marker="o", markersize=4, color=colour, label=case)
    axis.set(xscale="log", yscale="log", xlabel=name, title=title)
    axis.title.set_fontsize(10)
    ticks = [point[name] for point in points]
    axis.minorticks_off()
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    # ticks at 1, 2 and 5 times powers of ten, over a wide range at powers of ten alone
    heights = [y for line in axis.lines for y in line.get_ydata()]
    marks = [d * 10.0**e for e in range(-3, 8) for d in (1, 2, 5)] if heights else []
    if max(heights, default=1) > 500 * min(heights, default=1):
        marks = [mark for mark in marks if math.log10(mark) == round(math.log10(mark))]
    marks = [m for m in marks if min(heights) / 2.5 <= m <= max(heights) * 2.5]
    axis.set_yticks(marks, [f"{mark:,g}" for mark in marks])
    axis.grid(alpha=0.3)
    axis.tick_params(labelsize=8)
    if axis.lines:  # a panel where nothing could be measured has no legend
        axis.legend(fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
