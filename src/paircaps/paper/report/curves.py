"""Figures 4 and 5: accuracy by epoch, in training and on images held back, with one panel per dataset."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from paircaps._utils.figures import as_png, new_figure
from paircaps.paper.experiments import Experiment
from paircaps.paper.records import Cell, Record

_OWN = "own"
"""Stands for every routing that the experiments do not have themselves."""

COLOURS = {
    "fm": "#e8710a",
    "fm-runs": "#a33c00",
    "dynamic": "#2166c8",
    "em": "#2f8f4e",
    "pool": "#6b6b6b",
    _OWN: "#a855a8",
}
"""Colour of a variant, by its name or the part of it before the first hyphen."""

MARKERS = {"fm": "o", "fm-runs": "D", "dynamic": "s", "em": "v", "pool": "^", _OWN: "P"}
"""Marker of a variant: for readers who cannot tell the colours apart, and where lines overlap."""

_WRAP = 38


def draw_curves(experiment: Experiment, cells: Sequence[Cell]) -> bytes:
    """Draw the figure; a panel without trainings says why.

    Args:
        experiment: figure of the paper.
        cells: results of all its networks on all its datasets.

    Returns:
        The picture as PNG.
    """
    figure = new_figure(4.1 * len(experiment.columns), 3.9)
    axes = figure.subplots(1, len(experiment.columns), squeeze=False)[0]
    for axis, column in zip(axes, experiment.columns, strict=True):
        here = [cell for cell in cells if cell.study.data == column.data]
        axis.set_title(column.title, fontsize=10)
        if any(cell.records for cell in here):
            _draw_panel(axis, here)
        else:
            _draw_reason(axis, here[0].reason if here else "not run")
    handles = {text: line for axis in axes for line, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    if handles:
        look = {"loc": "outside lower center", "fontsize": 8, "frameon": False, "columnspacing": 1.2}
        figure.legend(handles.values(), handles.keys(), ncols=len(handles) // 2, **look)  # one column per network
    return as_png(figure)


def _draw_panel(axis: Any, cells: Sequence[Cell]) -> None:
    """Draw the curves of all networks on one dataset: means over seeds, and a band from the least to the most."""
    least = []
    for cell in cells:
        if not cell.records:
            continue
        colour, shape = _style_of(COLOURS, cell.variant.name), _style_of(MARKERS, cell.variant.name)
        steps = _values_by_epoch(cell.records, "step", "accuracy") or _values_by_epoch(
            cell.records, "epoch", "train_accuracy"
        )
        marker = "x" if len(steps) == 1 else ""
        title = f"{cell.variant.title}, training"
        axis.plot(*_means_over_seeds(steps), color=colour, lw=1, ls=":", marker=marker, ms=5, label=title)
        epochs = _values_by_epoch(cell.records, "epoch", "validation_accuracy")
        places, means = _means_over_seeds(epochs)
        axis.plot(places, means, color=colour, lw=1.5, marker=shape, ms=4, label=f"{cell.variant.title}, held back")
        least += [*(min(values) for values in epochs.values()), *_means_over_seeds(steps)[1][-1:]]
        axis.fill_between(
            places, [min(v) for v in epochs.values()], [max(v) for v in epochs.values()], color=colour, alpha=0.15, lw=0
        )
    axis.set_xlim(left=0)
    _leave_out_steep_start(axis, least)
    axis.set_xlabel("epoch", fontsize=9)
    axis.set_ylabel("accuracy, %", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def _style_of(table: Mapping[str, str], name: str) -> str:
    """Colour or marker of a variant."""
    return table.get(name) or table.get(name.split("-")[0]) or table[_OWN]


def _leave_out_steep_start(axis: Any, least: Sequence[float]) -> None:
    """Set the lower limit of the axis so that the steep beginning of training is cut off.

    Args:
        axis: axis of the panel.
        least: accuracies that must stay visible, in percent.
    """
    if least:
        top = axis.get_ylim()[1]
        axis.set_ylim(bottom=max(-2.0, min(least) - 0.25 * (top - min(least))), top=top)


def _values_by_epoch(records: Sequence[Record], kind: str, name: str) -> dict[float, list[float]]:
    """Values of all seeds by epoch, in percent, for the epochs that every seed has.

    Args:
        records: finished trainings.
        kind: kind of rows to take, ``step`` or ``epoch``.
        name: name of the number in a row.
    """
    found: dict[float, list[float]] = {}
    for record in records:
        for row in record.rows_of(kind):
            if name in row:
                found.setdefault(row["epoch"], []).append(100 * row[name])
    return {epoch: values for epoch, values in sorted(found.items()) if len(values) == len(records)}


def _means_over_seeds(values: dict[float, list[float]]) -> tuple[list[float], list[float]]:
    """Epochs, and the mean over seeds at each."""
    return list(values), [statistics.fmean(seeds) for seeds in values.values()]


def _draw_reason(axis: Any, reason: str) -> None:
    """Draw a panel without curves, which says why there are none."""
    axis.text(0.5, 0.5, textwrap.fill(reason, _WRAP), ha="center", va="center", fontsize=8, color="#666666")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color("lightgray")
