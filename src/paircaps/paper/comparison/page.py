"""The page of the comparison: tables, sentences, and a picture of accuracy over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paircaps._utils.figures import as_png, new_figure
from paircaps._utils.files import write_whole
from paircaps._utils.machine import machine_line
from paircaps._utils.text_tables import markdown_table
from paircaps.paper.comparison.design import BATCH, HEADS, LEARNING_RATES, POOL, TASKS, RoutingComparison
from paircaps.paper.comparison.records import Records
from paircaps.paper.comparison.results import CONTROL, LEARNT, Row, collect, depths, learns_through, standing

PAGE, PICTURE = "routings.md", "pareto.png"
"""Names of the page, and of its picture, in the folder of the comparison."""

NOTHING = "–"
"""Cell of a number that there is not yet."""

_BUDGETS = {"time": "Equal time", "steps": "Equal steps"}
_COLOURS = ("#2f6fb2", "#c2571a", "#3d8f5f")


def write_page(comparison: RoutingComparison, folder: Path) -> list[Path]:
    """Write the page and its picture from the records in a folder.

    Args:
        comparison: what is compared.
        folder: folder of the comparison.

    Returns:
        the files that were written.
    """
    rows = collect(comparison, folder)
    write_whole(folder / PICTURE, draw_pareto(rows))
    write_whole(folder / PAGE, as_markdown(comparison, folder, rows).encode())
    return [folder / PAGE, folder / PICTURE]


def as_markdown(comparison: RoutingComparison, folder: Path, rows: Sequence[Row]) -> str:
    """The page as Markdown.

    Args:
        comparison: what is compared.
        folder: folder of the comparison.
        rows: results of all networks.
    """
    tasks = [task.name for task in comparison.wanted_tasks]
    lines = ["# Routings compared", "", f"`paircaps reproduce routings --out {folder.parent.name}`", ""]
    lines += [_introduction(comparison, folder, rows), ""]
    for budget, title in _BUDGETS.items():
        lines += [f"## {title}", "", _about(budget, comparison), ""]
        lines += markdown_table(*_accuracies(rows, tasks, budget))
        lines += ["", *_sentences(rows, tasks, budget), ""]
    lines += [
        "## What it costs",
        "",
        _about_costs(comparison),
        "",
        *markdown_table(*_costs(comparison, folder, rows, tasks)),
    ]
    lines += ["", f"![Accuracy over the time of a training step]({PICTURE})", ""]
    return "\n".join(lines)


def _introduction(comparison: RoutingComparison, folder: Path, rows: Sequence[Row]) -> str:
    """What was done, on which machine, and how much of it is finished."""
    machines = sorted({machine_line(record.machine) for record in Records(folder)})
    wanted = len(rows) * comparison.seeds
    finished = {budget: sum(len(getattr(row, budget)) for row in rows) for budget in _BUDGETS}
    heads = "; ".join(f"`{head.name}`, {head.title}" for head in HEADS.values())
    rates = ", ".join(f"{lr:g}" for lr in LEARNING_RATES)
    return " ".join(
        [
            f"Every routing, average pooling of the same size (`{POOL}`), and the control that routes nothing",
            f"(`{CONTROL}`), in the same networks: a residual network of three blocks, and {len(HEADS)} heads:",
            f"{heads}.",
            f"Adam with a one-cycle schedule, batches of {BATCH}, the losses that `auto` takes, fp32, one thread. The",
            f"highest rate is one of {rates}: for each network and task the one that is best, with seed 0, on 5 % of",
            "the training images, which are held back; test images choose nothing. Cells are percent on test images,",
            "mean ±",
            f"standard deviation over {comparison.seeds} seeds. Finished: {finished['time']} of {wanted} trainings of",
            f"equal time, {finished['steps']} of {wanted} of equal steps; the same command goes on with the others.",
            f"{'; '.join(machines) or 'No training is finished'}.",
        ]
    )


def _about(budget: str, comparison: RoutingComparison) -> str:
    if budget == "steps":
        return f"Every network is trained for {comparison.steps} steps."
    return (
        f"Every network is trained for the time in which the pooling network takes {comparison.steps} steps. Times "
        "were measured in turns, so that a busy machine slowed all alike; the steps that follow are in brackets."
    )


def _accuracies(rows: Sequence[Row], tasks: Sequence[str], budget: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table of accuracies, a row for each network."""
    header = ["head", "routing", *(TASKS[task].title for task in tasks)]
    if budget == "steps":
        header.append("rates")
    table = []
    for network in _networks(rows):
        of_network = _of(rows, network)
        cells = [_accuracy_cell(of_network.get(task), budget) for task in tasks]
        if budget == "steps":
            cells.append(", ".join(_rate_cell(of_network.get(task)) for task in tasks))
        table.append([*network, *cells])
    return header, table


def _networks(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.head, row.routing) for row in rows))


def _of(rows: Sequence[Row], network: tuple[str, str]) -> dict[str, Row]:
    """Rows of a network by task."""
    return {row.task: row for row in rows if (row.head, row.routing) == network}


def _accuracy_cell(row: Row | None, budget: str) -> str:
    accuracy = None if row is None else row.accuracy(budget)
    if row is None or accuracy is None:
        return "no rate worked" if row is not None and row.failed == len(LEARNING_RATES) else NOTHING
    few = "" if accuracy.deviation is not None else " (one seed)"
    steps = f" ({row.time_steps})" if budget == "time" else ""
    return f"{accuracy}{few}{steps}"


def _rate_cell(row: Row | None) -> str:
    if row is None or row.lr is None:
        return NOTHING
    return f"{row.lr:g}" + (f" ({row.failed} not finite)" if row.failed else "")


def _sentences(rows: Sequence[Row], tasks: Sequence[str], budget: str) -> list[str]:
    """A sentence for each task and head on what is clear by Welch's test and what is not."""
    lines = []
    for task in tasks:
        for head, found in HEADS.items():
            of_head = [row for row in rows if row.task == task and row.head == head]
            control = next((row for row in of_head if row.routing == CONTROL), None)
            pool = next((row for row in rows if row.task == task and row.routing == POOL), None)
            for name, reference in ((f"`{CONTROL}`", control), ("pooling", pool)):
                stands = None if reference is None else standing(of_head, reference, budget)
                if stands is not None:
                    lines.append(f"- {TASKS[task].title}, {found.name}, against {name}: {_in_words(stands)}.")
    return lines or ["What is clear by Welch's test (two-sided, 5 %) is said here when the second seeds are finished."]


def _in_words(stands: Any) -> str:
    parts = [("clearly better", stands.above), ("clearly worse", stands.below), ("not to be told apart", stands.open)]
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)


def _about_costs(comparison: RoutingComparison) -> str:
    return " ".join(
        [
            f"Time of a training step of {BATCH} images and of an image at inference, in milliseconds on one thread,",
            "and the most memory that a step takes beyond weights and images; all networks of a task took turns. *R²*:",
            "of a linear map from the right capsule's pose to its true place, rotation, scale and shear (mean).",
            f"*layers*: number of capsule layers through which it learns glyphs to {100 * LEARNT:g} % in",
            f"{comparison.steps} steps, of 1, 2, 3 and 6.",
        ]
    )


def _costs(
    comparison: RoutingComparison, folder: Path, rows: Sequence[Row], tasks: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of costs, measured on the first task."""
    header = ["head", "routing", "parameters", "ms a step", "ms an image", "memory, MB", "R²", "layers"]
    deep, table = depths(comparison, folder), []
    for network in _networks(rows):
        row = _of(rows, network)[tasks[0]]
        cost = row.cost
        times = [NOTHING] * 3
        if cost is not None:
            memory = NOTHING if cost.memory is None else f"{cost.memory / 1e6:.0f}"
            times = [f"{cost.step:.1f}", f"{cost.image:.3f}", memory]
        through = learns_through(deep.get(network[1], {})) if network[0] == "own" else None
        table.append(
            [
                *network,
                f"{row.parameters:,}",
                *times,
                NOTHING if row.r2 is None else f"{row.r2:.2f}",
                NOTHING if through is None else str(through),
            ]
        )
    return header, table


def draw_pareto(rows: Sequence[Row]) -> bytes:
    """Draw accuracy after equally many steps over the time of a step, a panel for each task.

    Args:
        rows: results of all networks.
    """
    tasks = list(dict.fromkeys(row.task for row in rows))
    figure = new_figure(5 * len(tasks), 4.6)
    for axis, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        points = [
            (row, row.cost.step, accuracy.mean)
            for row in rows
            if row.task == task and row.cost is not None and (accuracy := row.accuracy("steps")) is not None
        ]
        _draw_panel(axis, points)
        axis.set_title(TASKS[task].title, fontsize=10)
        axis.set_xlabel("ms a training step", fontsize=9)
    figure.supylabel("percent on test images", fontsize=9)
    return as_png(figure)


def _draw_panel(axis: Any, points: list[tuple[Row, float, float]]) -> None:
    """Draw the networks of a task as points with their names, and the line of those that no other one dominates."""
    colours = dict(zip(HEADS, _COLOURS, strict=True)) | {POOL: "#6b7280"}
    for head, colour in colours.items():
        of_head = [(time, percent) for row, time, percent in points if row.head == head]
        if of_head:
            axis.scatter(*zip(*of_head, strict=True), s=18, color=colour, label=head)
    front, best = [], float("-inf")
    for _, time, percent in sorted(points, key=lambda point: (point[1], -point[2])):
        if percent > best:
            front.append((time, percent))
            best = percent
    if front:
        axis.step(*zip(*front, strict=True), where="post", color="#9aa3af", linewidth=0.8, zorder=0)
        axis.legend(fontsize=8, loc="lower right", title="head", title_fontsize=8)
    for row, time, percent in points:
        axis.annotate(row.routing, (time, percent), xytext=(3, 3), textcoords="offset points", fontsize=7)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
