"""Curves of compared runs: loss and accuracy side by side, a row of panels for each dataset."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from paircaps._utils.figures import as_png, new_figure
from paircaps.training.compare.groups import Comparison, SeedGroup
from paircaps.training.compare.runs import ComparedRun

COLOURS = ("#2f6fb2", "#d1602b", "#3c8c4a", "#8a5bb0", "#6b7280", "#b23a6f", "#a07c1c", "#1f9ea3")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Colours and markers of the groups, which go round at different lengths, so that many groups differ too."""

AXES = {"epochs": "epochs", "steps": "steps", "minutes": "minutes of training"}
"""What curves are drawn over, and the label of the axis."""

_LOG_FROM = 20
"""Factor between the largest and the least loss from which the axis of losses is logarithmic."""

_WIDEST_OF_TWO = 80
"""Most characters of a label in a legend of two columns."""

Curve = list[tuple[float, list[float]]]
"""Points of a curve over several seeds: place on the axis, and the value of each seed."""


def draw_curves(comparisons: Sequence[Comparison], over: str = "epochs") -> bytes:
    """Draw loss and accuracy of all runs as a PNG file, in training and on images held back.

    Args:
        comparisons: what to draw, a row of two panels for each dataset.
        over: what the curves are drawn over, one of ``AXES``.
    """
    heights = [3.9 + 0.22 * _legend_rows(comparison) for comparison in comparisons]
    figure = new_figure(11, sum(heights) + 0.4)
    caption = "Solid: on images held back; dotted: in training."
    if any(len(group.finished) > 1 for comparison in comparisons for group in comparison.groups):
        caption += " A line is the mean over seeds, its band from least to most."
    figure.suptitle(caption, fontsize=9, color="#444444")
    parts = figure.subfigures(len(comparisons), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, comparison in zip(parts, comparisons, strict=True):
        _draw_dataset(part, comparison, over)
    return as_png(figure)


def _draw_dataset(part: Any, comparison: Comparison, over: str) -> None:
    """Draw the panels of one dataset, with a legend of its groups below them."""
    part.suptitle(comparison.data, fontsize=11, fontweight="bold")
    left, right = part.subplots(1, 2)
    kinds = " (of different kinds)" if len(comparison.loss_names) > 1 else ""
    for axis, name, factor, title in ((left, "loss", 1, f"loss{kinds}"), (right, "accuracy", 100, "accuracy, %")):
        seen: list[float] = []  # values that must stay visible
        for number, group in enumerate(comparison.groups):
            seen += _draw_group(axis, group, number, name, factor, over)
        _finish_panel(axis, name, seen, title, AXES[over])
    handles = [_legend_line(number) for number in range(len(comparison.groups))]
    labels = _legend(comparison)
    part.legend(handles, labels, loc="outside lower center", ncols=_legend_columns(labels), fontsize=9, frameon=False)


def _legend(comparison: Comparison) -> list[str]:
    return [_label(*both) for both in zip(comparison.labels, comparison.groups, strict=True)]


def _legend_columns(labels: Sequence[str]) -> int:
    return 1 if max(map(len, labels)) > _WIDEST_OF_TWO else 2


def _legend_rows(comparison: Comparison) -> int:
    labels = _legend(comparison)
    return -(-len(labels) // _legend_columns(labels))


def _label(label: str, group: SeedGroup) -> str:
    """Legend of a group: what differs, and the accuracy of its test."""
    accuracy = group.summary(lambda run: None if run.accuracy is None else 100 * run.accuracy)
    if accuracy is None:
        return f"{label} (not finished)"
    return f"{label}: test {accuracy} % ({'one seed' if accuracy.seeds == 1 else f'n = {accuracy.seeds}'})"


def _legend_line(number: int) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=_colour(number), marker=_marker(number), lw=1.6, ms=4)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


def _draw_group(axis: Any, group: SeedGroup, number: int, name: str, factor: float, over: str) -> list[float]:
    """Draw the mean over finished runs with its band, and a line for each run that is not finished.

    Args:
        axis: panel to draw in.
        group: runs that differ in their seed alone.
        number: number of the group, for its colour and marker.
        name: ``"loss"`` or ``"accuracy"``.
        factor: what values are multiplied by, 100 for percent.
        over: what the curves are drawn over.

    Returns:
        Values that must stay visible: those of the validations, or else those of the second half of the training.
    """
    seen: list[float] = []
    for runs in ([group.finished] if group.finished else []) + [(run,) for run in group.unfinished]:
        colour, width = _colour(number), 1.6 if runs == group.finished else 0.9
        training = _curve(runs, "step", name, factor, over) or _curve(runs, "epoch", f"train_{name}", factor, over)
        places, means = _means(training)
        axis.plot(places, means, color=colour, lw=0.9, ls=":", alpha=0.8, marker="." if len(places) == 1 else "")
        validation = _curve(runs, "epoch", f"validation_{name}", factor, over)
        places, means_held_back = _means(validation)
        axis.plot(places, means_held_back, color=colour, lw=width, marker=_marker(number), ms=3.5)
        lowest, highest = [min(values) for _, values in validation], [max(values) for _, values in validation]
        axis.fill_between(places, lowest, highest, color=colour, alpha=0.18, lw=0)
        seen += [*lowest, *highest, *(means[-1:] if validation else means[len(means) // 2 :])]
    return seen


def _curve(runs: Sequence[ComparedRun], kind: str, name: str, factor: float, over: str) -> Curve:
    """Points at the steps that all runs have.

    Args:
        runs: runs that differ in their seed alone.
        kind: kind of rows, ``"step"`` or ``"epoch"``.
        name: name of the number in a row.
        factor: what it is multiplied by.
        over: what the curve is drawn over.
    """
    found: dict[int, list[tuple[float, float]]] = {}
    for run in runs:
        for row in run.rows_of(kind):
            place = _place(run, row, over)
            if place is not None and row.get(name) is not None:
                found.setdefault(row["step"], []).append((place, factor * row[name]))
    return [
        (statistics.fmean(place for place, _ in points), [value for _, value in points])
        for _, points in sorted(found.items())
        if len(points) == len(runs)
    ]


def _place(run: ComparedRun, row: dict[str, Any], over: str) -> float | None:
    """Where a row lies on the axis; None if the run left no times."""
    if over == "minutes":
        return None if run.seconds is None else run.seconds.at(row["step"]) / 60
    return float(row["epoch" if over == "epochs" else "step"])


def _means(curve: Curve) -> tuple[list[float], list[float]]:
    """Places of a curve, and the mean over seeds at each."""
    return [place for place, _ in curve], [statistics.fmean(values) for _, values in curve]


def _finish_panel(axis: Any, name: str, seen: Sequence[float], title: str, label: str) -> None:
    """Set labels, limits and grid of a panel.

    Args:
        axis: the panel.
        name: ``"loss"`` or ``"accuracy"``.
        seen: values that must stay visible.
        title: label of the vertical axis.
        label: label of the horizontal axis.
    """
    if not seen:
        axis.text(0.5, 0.5, "no rows of metrics yet", transform=axis.transAxes, ha="center", color="#666666")
    elif name == "loss" and 0 < _LOG_FROM * min(seen) < max(seen):
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
    else:
        axis.set_ylim(*_limits(seen, [value for line in axis.lines for value in line.get_ydata()], name == "loss"))
    axis.set_xlim(left=0)
    axis.set_xlabel(label, fontsize=9)
    axis.set_ylabel(title, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def _limits(seen: Sequence[float], drawn: Sequence[float], is_falling: bool) -> tuple[float, float]:
    """Limits of the vertical axis that cut off the steep beginning of a training.

    Args:
        seen: values that must stay visible.
        drawn: values of all lines.
        is_falling: True for a number that falls in training, whose beginning is at the top.
    """
    low, high = (min(drawn), max(seen)) if is_falling else (min(seen), max(drawn))
    room = (high - low) or max(abs(high), 1e-6)
    below, above = (0.05, 0.25) if is_falling else (0.25, 0.05)
    return low - below * room, high + above * room
