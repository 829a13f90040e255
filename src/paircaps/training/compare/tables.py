"""Tables of compared runs: for a terminal, as Markdown, as CSV and for JSON."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paircaps._utils.summary import Summary
from paircaps._utils.text_tables import GAP, column_widths, markdown_table, shortened, text_line
from paircaps.training.compare.groups import Comparison, SeedGroup, network_in_words, recipe_differences
from paircaps.training.compare.runs import ComparedRun

NOTHING = "–"
"""What stands in a cell for a number that there is not."""

_INTRO = (
    "Accuracy of the test in percent, mean ± standard deviation (n − 1) over n runs that differ in their seed alone; "
    "validation, also in percent, is that of the same weights; time is that of a training."
)
_SHORTEST_NAME = 12
_WIDEST_VALUE = 28
"""Fewest characters of a run's name, and most of a recipe's value, in a narrow terminal."""


# --- columns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComparedColumn:
    """Column of a table.

    Args:
        title: its first line.
        text: function from a group or an unfinished run to the text in its row.
        drop: when the column is left out of a terminal that is too narrow, the highest number first; 0 for never.
    """

    title: str
    text: Callable[[Any], str]
    drop: int = 0


def _finished_columns(groups: Sequence[SeedGroup]) -> list[ComparedColumn]:
    """Columns of the table of finished runs; other views have one if an accuracy was averaged over them."""
    views = [ComparedColumn("without other views", lambda group: _percent(group, _plain_accuracy), 4)]
    return [
        ComparedColumn("run", lambda group: group.name),
        ComparedColumn("network", lambda group: group.network, 3),
        ComparedColumn("parameters", lambda group: f"{group.parameters:,}"),
        ComparedColumn("n", lambda group: str(len(group.finished))),
        ComparedColumn("seeds", lambda group: ", ".join(str(run.seed) for run in group.finished), 2),
        ComparedColumn("accuracy", lambda group: _percent(group, lambda run: run.accuracy)),
        *(views if any(run.plain_accuracy is not None for group in groups for run in group.finished) else []),
        ComparedColumn("validation", lambda group: _mean(group, lambda run: run.validation_accuracy, 100, 2), 1),
        ComparedColumn("loss", lambda group: _mean(group, lambda run: run.loss, 1, 4)),
        ComparedColumn("steps", lambda group: _span([f"{run.step:,}" for run in group.finished])),
        ComparedColumn("time", lambda group: _times(group.finished)),
        ComparedColumn("threads", lambda group: _span([str(run.threads or NOTHING) for run in group.finished]), 5),
        ComparedColumn("commit", lambda group: ", ".join(dict.fromkeys(run.commit for run in group.finished)), 6),
    ]


_UNFINISHED_COLUMNS = (
    ComparedColumn("run", lambda run: run.name),
    ComparedColumn("network", lambda run: network_in_words(run.recipe), 3),
    ComparedColumn("seed", lambda run: str(run.seed)),
    ComparedColumn("steps done", lambda run: _progress(run)),
    ComparedColumn("validation", lambda run: _number(run.validation_accuracy, 100, 2)),
    ComparedColumn("validation loss", lambda run: _number(run.validation_loss, 1, 4), 1),
    ComparedColumn("time", lambda run: _times([run])),
    ComparedColumn("threads", lambda run: str(run.threads or NOTHING), 5),
    ComparedColumn("commit", lambda run: run.commit or NOTHING, 6),
)


def _plain_accuracy(run: ComparedRun) -> float | None:
    """Accuracy without other views; that of the test where no others were averaged."""
    return run.accuracy if run.plain_accuracy is None else run.plain_accuracy


def _percent(group: SeedGroup, value: Callable[[ComparedRun], float | None]) -> str:
    summary = group.summary(lambda run: None if (number := value(run)) is None else 100 * number)
    return NOTHING if summary is None else str(summary)


def _mean(group: SeedGroup, value: Callable[[ComparedRun], float | None], factor: float, decimals: int) -> str:
    summary = group.summary(value)
    return _number(None if summary is None else summary.mean, factor, decimals)


def _number(value: float | None, factor: float, decimals: int) -> str:
    return NOTHING if value is None else f"{factor * value:.{decimals}f}"


def _span(values: Sequence[str]) -> str:
    """One text for the values of several runs, which are mostly the same."""
    return ", ".join(dict.fromkeys(values))


def _progress(run: ComparedRun) -> str:
    done = f"{run.step:,}" if run.steps is None else f"{run.step:,} of {run.steps:,}"
    return f"{done}, not finite" if run.has_failed else done


def _times(runs: Sequence[ComparedRun]) -> str:
    """Time of a training, from the shortest to the longest one, in seconds, minutes or hours."""
    seconds = sorted(run.seconds.total for run in runs if run.seconds is not None)
    if not seconds:
        return NOTHING
    unit, size = next((unit, size) for unit, size, least in _UNITS if seconds[-1] >= least)
    values = dict.fromkeys(f"{value / size:.{0 if value >= 10 * size else 1}f}" for value in (seconds[0], seconds[-1]))
    return f"{'–'.join(values)} {unit}"


_UNITS = (("h", 3600, 4 * 3600), ("min", 60, 120), ("s", 1, 0))
"""Units of time, their seconds, and the seconds from which they are used."""


# --- terminal --------------------------------------------------------------------------------------------------------


def as_text(comparisons: Sequence[Comparison], width: int) -> str:
    """Tables for a terminal.

    Args:
        comparisons: what to show.
        width: characters of a line; columns that do not fit are left out, and named.
    """
    lines, left_out = [], dict[str, None]()
    finished = [group for comparison in comparisons for group in comparison.finished]
    tables = [
        (_finished_columns(finished), [(each.data, each.finished) for each in comparisons if each.finished], []),
        (_UNFINISHED_COLUMNS, [(each.data, each.unfinished) for each in comparisons if each.unfinished], ["not finished"]),
    ]
    for columns, sections, title in tables:
        if sections:
            table, dropped = _sections_as_text(columns, sections, width)
            lines += [*title, *table, ""]
            left_out |= dict.fromkeys(dropped)
    for comparison in comparisons:
        lines += _differences_as_text(comparison, width)
    notes = [note for comparison in comparisons for note in comparison.notes()]
    if finished:
        notes.insert(0, _INTRO)
    if left_out:
        notes.append(f"Too wide for {width} columns: {', '.join(left_out)}; -o FILE.md and -o FILE.csv have them.")
    lines += [line for note in notes for line in textwrap.wrap(note, width)]
    return "\n".join(lines) + "\n"


def _sections_as_text(
    columns: Sequence[ComparedColumn], sections: Sequence[tuple[str, Sequence[Any]]], width: int
) -> tuple[list[str], list[str]]:
    """Lines of a table with a line above the rows of each dataset, and the titles of columns that were left out."""
    dropped: list[ComparedColumn] = []
    while True:
        shown = [column for column in columns if column not in dropped]
        rows = [[column.text(item) for column in shown] for _, items in sections for item in items]
        widths = column_widths([[column.title for column in shown], *rows])
        excess = sum(widths) + len(GAP) * len(widths) - width  # every row is indented by a gap
        droppable = [column for column in shown if column.drop]
        if excess <= widths[0] - _SHORTEST_NAME or not droppable:
            break
        dropped.append(max(droppable, key=lambda column: column.drop))
    widths[0] = max(min(widths[0], _SHORTEST_NAME), widths[0] - max(0, excess))
    lines, left = [GAP + text_line([column.title for column in shown], widths, _left_columns(shown))], iter(rows)
    for data, items in sections:
        lines.append(data)
        for _ in items:
            name, *cells = next(left)
            lines.append(GAP + text_line([shortened(name, widths[0]), *cells], widths, _left_columns(shown)))
    return lines, [column.title for column in columns if column in dropped]


def _left_columns(columns: Sequence[ComparedColumn]) -> int:
    """Number of columns of words, which are aligned to the left: the run and its network."""
    return sum(column.title in ("run", "network") for column in columns)


def _differences_as_text(comparison: Comparison, width: int) -> list[str]:
    """Table of the keys that differ, in blocks of as many groups as fit beside each other."""
    if not comparison.differences:
        return []
    keys = list(comparison.differences)
    columns = [
        [shortened(text, _WIDEST_VALUE) for text in (group.name, *(values[number] for values in cells))]
        for cells in [list(comparison.differences.values())]
        for number, group in enumerate(comparison.groups)
    ]
    first = [f"{comparison.data}: what differs", *(GAP + key for key in keys)]
    lines: list[str] = []
    while columns:
        block, room = [first], width - max(map(len, first))
        while columns and (len(block) == 1 or room >= len(GAP) + max(map(len, columns[0]))):
            room -= len(GAP) + max(map(len, columns[0]))
            block.append(columns.pop(0))
        rows = list(zip(*block, strict=True))
        lines += [*(text_line(row, column_widths(rows), len(block)) for row in rows), ""]
    return lines


# --- files -----------------------------------------------------------------------------------------------------------


def as_markdown(comparisons: Sequence[Comparison]) -> str:
    """Tables as Markdown, with all columns."""
    lines = ["# Runs compared", "", f"`paircaps compare RUN ...`. {_INTRO}", ""]
    finished = [(comparison.data, group) for comparison in comparisons for group in comparison.finished]
    if finished:
        lines += _markdown_rows(_finished_columns([group for _, group in finished]), finished)
    unfinished = [(comparison.data, run) for comparison in comparisons for run in comparison.unfinished]
    if unfinished:
        lines += ["Not finished:", "", *_markdown_rows(_UNFINISHED_COLUMNS, unfinished)]
    for comparison in comparisons:
        if comparison.differences:
            rows = [[f"`{key}`", *values] for key, values in comparison.differences.items()]
            names = [group.name for group in comparison.groups]
            lines += [f"What differs on {comparison.data}:", "", *markdown_table(["key", *names], rows), ""]
    lines += [f"- {note}" for comparison in comparisons for note in comparison.notes()]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_rows(columns: Sequence[ComparedColumn], items: Sequence[tuple[str, Any]]) -> list[str]:
    """Lines of a table whose first column is the dataset."""
    header = ["data", *(column.title for column in columns)]
    return [*markdown_table(header, [[data, *(column.text(item) for column in columns)] for data, item in items]), ""]


def as_csv(comparisons: Sequence[Comparison]) -> str:
    """One row for each run, with mean and deviation of its group, and a column for each key in which recipes differ."""
    groups = [(comparison.data, group) for comparison in comparisons for group in comparison.groups]
    differences = recipe_differences([group.recipe for _, group in groups])  # also between datasets
    rows = []
    for number, (data, group) in enumerate(groups):
        accuracy = group.summary(lambda run: run.accuracy)
        of_group = {
            "group": group.name,
            "n": len(group.finished),
            "mean_accuracy": accuracy and accuracy.mean,
            "deviation": accuracy and accuracy.deviation,
        }
        settings = {key: values[number] for key, values in differences.items()}
        rows += [{"data": data, **_facts(run), **of_group, **settings} for run in group.runs]
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_dict(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Everything for JSON: datasets, their groups, the runs of each with its validations, and what differs."""
    return {
        "datasets": [
            {
                "data": comparison.data,
                "groups": [_group_as_dict(group) for group in comparison.groups],
                "differences": comparison.differences,
                "notes": comparison.notes(),
            }
            for comparison in comparisons
        ]
    }


def _group_as_dict(group: SeedGroup) -> dict[str, Any]:
    numbers: dict[str, Callable[[ComparedRun], float | None]] = {
        "accuracy": lambda run: run.accuracy,
        "plain_accuracy": _plain_accuracy,
        "validation_accuracy": lambda run: run.validation_accuracy if run.is_finished else None,
        "loss": lambda run: run.loss,
    }
    summaries: dict[str, Summary | None] = {name: group.summary(value) for name, value in numbers.items()}
    return {
        "name": group.name,
        "network": group.network,
        "parameters": group.parameters,
        **{name: None if summary is None else asdict(summary) for name, summary in summaries.items()},
        "runs": [{**_facts(run), "validations": _validations(run)} for run in group.runs],
    }


def _validations(run: ComparedRun) -> list[dict[str, Any]]:
    """Step, epoch, seconds, and loss and accuracy of every validation."""
    names = ("step", "epoch", "validation_loss", "validation_accuracy")
    return [
        {**{name: row[name] for name in names}, "seconds": run.seconds and run.seconds.at(row["step"])}
        for row in run.rows_of("epoch")
        if row.get("validation_accuracy") is not None
    ]


def _facts(run: ComparedRun) -> dict[str, Any]:
    """What is known of a run, by name; accuracies in 0..1."""
    return {
        "run": run.name,
        "folder": str(run.folder),
        "finished": run.is_finished,
        "network": network_in_words(run.recipe),
        "parameters": run.parameters,
        "seed": run.seed,
        "accuracy": run.accuracy,
        "plain_accuracy": run.plain_accuracy,
        "loss": run.loss,
        "validation_accuracy": run.validation_accuracy,
        "validation_loss": run.validation_loss,
        "steps_done": run.step,
        "steps": run.steps,
        "seconds": None if run.seconds is None else round(run.seconds.total, 3),
        "threads": run.threads,
        "commit": run.commit,
    }
