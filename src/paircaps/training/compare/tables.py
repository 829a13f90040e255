"""Tables of compared runs: their columns, Markdown, CSV, and what JSON has of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paircaps._utils.summary import Summary
from paircaps._utils.text_tables import markdown_table
from paircaps.training.compare.groups import Comparison, SeedGroup, network_in_words, recipe_differences
from paircaps.training.compare.runs import ComparedRun

NOTHING = "–"
"""What stands in a cell for a number that there is not."""

INTRO = (
    "Accuracy of the test in percent, mean ± standard deviation (n − 1) over n runs that differ in their seed alone; "
    "validation, also in percent, is that of the same weights; time is that of a training."
)
"""What the numbers in a table are."""

INTRO_OF_MASKS = (
    "Mean IoU is the mean over the classes of intersection over union of the found and the true masks, in percent."
)


# --- columns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComparedColumn:
    """Column of a table.

    Args:
        title: its first line.
        text: function from a group of runs, or from a run that is not finished, to the text in its row.
        drop: when the column is left out of a terminal that is too narrow, the highest number first; 0 for never.
    """

    title: str
    text: Callable[[Any], str]
    drop: int = 0


def finished_columns(groups: Sequence[SeedGroup]) -> list[ComparedColumn]:
    """Columns of the table of finished runs; mean IoU has one if a network has masks, other views if any were used."""
    views = [ComparedColumn("without other views", lambda group: _percent(group, _plain_accuracy), 4)]
    masks = [ComparedColumn("mean IoU", lambda group: _percent(group, lambda run: run.mean_iou))]
    return [
        ComparedColumn("run", lambda group: group.name),
        ComparedColumn("network", lambda group: group.network, 3),
        ComparedColumn("parameters", lambda group: f"{group.parameters:,}"),
        ComparedColumn("n", lambda group: str(len(group.finished))),
        ComparedColumn("seeds", lambda group: ", ".join(str(run.seed) for run in group.finished), 2),
        ComparedColumn("accuracy", lambda group: _percent(group, lambda run: run.accuracy)),
        *(masks if any(run.mean_iou is not None for group in groups for run in group.finished) else []),
        *(views if any(run.plain_accuracy is not None for group in groups for run in group.finished) else []),
        ComparedColumn("validation", lambda group: _mean(group, lambda run: run.validation_accuracy, 100, 2), 1),
        ComparedColumn("loss", lambda group: _mean(group, lambda run: run.loss, 1, 4)),
        ComparedColumn("steps", lambda group: _span([f"{run.step:,}" for run in group.finished])),
        ComparedColumn("time", lambda group: _times(group.finished)),
        ComparedColumn("threads", lambda group: _span([str(run.threads or NOTHING) for run in group.finished]), 5),
        ComparedColumn("commit", lambda group: ", ".join(dict.fromkeys(run.commit for run in group.finished)), 6),
    ]


UNFINISHED_COLUMNS = (
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


# --- files -----------------------------------------------------------------------------------------------------------


def as_markdown(comparisons: Sequence[Comparison]) -> str:
    """Tables as Markdown, with all columns."""
    finished = [(comparison.data, group) for comparison in comparisons for group in comparison.finished]
    masks = (
        f" {INTRO_OF_MASKS}" if any(run.mean_iou is not None for _, group in finished for run in group.finished) else ""
    )
    lines = ["# Runs compared", "", f"`paircaps compare RUN ...`. {INTRO}{masks}", ""]
    if finished:
        lines += _markdown_rows(finished_columns([group for _, group in finished]), finished)
    unfinished = [(comparison.data, run) for comparison in comparisons for run in comparison.unfinished]
    if unfinished:
        lines += ["Not finished:", "", *_markdown_rows(UNFINISHED_COLUMNS, unfinished)]
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
        "mean_iou": lambda run: run.mean_iou,
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
        "mean_iou": run.mean_iou,
        "loss": run.loss,
        "validation_accuracy": run.validation_accuracy,
        "validation_loss": run.validation_loss,
        "steps_done": run.step,
        "steps": run.steps,
        "seconds": None if run.seconds is None else round(run.seconds.total, 3),
        "threads": run.threads,
        "commit": run.commit,
    }
