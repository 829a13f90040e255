"""Accuracy and time of finished trainings, read from their folders: a table by recipe, and accuracy over minutes.

Times are those of ``timing.jsonl``: from each start of a training to its last row of speed, without the pauses between
two starts. Trainings that ran beside others took longer than they need.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from paircaps._utils.figures import as_png, new_figure
from paircaps.errors import TrainingError
from paircaps.model_files import read_metadata
from paircaps.models import count_parameters, create_model
from paircaps.training.recipe import Recipe, Run
from paircaps.training.recipe_io import to_toml
from paircaps.training.run_folder import existing_folder

COLOURS = ("#2f6fb2", "#d1602b", "#3c8c4a", "#8a5bb0", "#6b7280", "#b23a6f")


@dataclass(frozen=True)
class FinishedRun:
    """A finished training.

    Args:
        folder: where it is.
        network: model and routing, in words.
        parameters: number of trained weights of the model, without its decoder.
        data: dataset that was tested on, with the note on its files.
        seed: seed of the training.
        accuracy: of the test, in percent.
        plain_accuracy: of the test without other views of the images, in percent.
        minutes: time of the training.
        threads: number of threads.
        commit: commit of the code at each start, each once.
        curve: minutes and validation accuracy in percent, after each validation.
        group: settings of the recipe without its seed: trainings with the same ones are put together.
    """

    folder: str
    network: str
    parameters: int
    data: str
    seed: int
    accuracy: float
    plain_accuracy: float
    minutes: float
    threads: int
    commit: str
    curve: list[tuple[float, float]]
    group: str


def bench_runs(folders: Sequence[Path]) -> dict[str, object]:
    """Read finished trainings.

    Args:
        folders: folders of trainings.

    Raises:
        TrainingError: if one of them is not finished.
    """
    runs = sorted((read_run(folder) for folder in folders), key=lambda run: (run.data, run.network, run.seed))
    return {"runs": [asdict(run) for run in runs]}


def read_run(folder: Path) -> FinishedRun:
    """Read a finished training.

    Args:
        folder: folder of the training.
    """
    run = existing_folder(folder)
    if not run.model.exists():
        raise TrainingError(f"{folder}: no finished training: it has no {run.model.name}")
    recipe, metadata = run.read_recipe(), read_metadata(folder)
    trained = metadata["trained"]
    metrics, timing = _rows(run.metrics), _rows(run.timing)
    tests = [row for row in metrics if row["kind"] == "test"]
    if not tests:
        raise TrainingError(f"{run.metrics}: has no row of a test, so no training is finished here")
    test = tests[-1]
    minutes = minutes_by_step(timing)
    curve = [
        (_at(minutes, row["step"]), 100 * row["validation_accuracy"])
        for row in metrics
        if row["kind"] == "epoch" and "validation_accuracy" in row
    ]
    return FinishedRun(
        str(folder),
        _network_in_words(recipe),
        _count_parameters(metadata),
        f"{trained['tested_on']} ({trained['note']})" if trained.get("note") else trained["tested_on"],
        recipe.train.seed,
        100 * test["accuracy"],
        100 * test.get("plain_accuracy", test["accuracy"]),
        max(minutes.values(), default=0.0),
        trained["machine"]["threads"],
        " and ".join(dict.fromkeys(row["machine"]["commit"] for row in timing if "start" in row)),
        curve,
        to_toml(replace(recipe, train=replace(recipe.train, seed=0), run=Run())),
    )


def _count_parameters(metadata: dict[str, Any]) -> int:
    """Number of trained weights of a model by its description, without its weights."""
    with torch.device("meta"):
        return count_parameters(create_model(metadata["model"], **metadata["arguments"]))


def _network_in_words(recipe: Recipe) -> str:
    pooling = "pool" in recipe.model.name
    options = ", ".join(f"{key} {value}" for key, value in recipe.model.options.items())
    words = [recipe.model.name, *([] if pooling else [recipe.model.routing]), *([options] if options else [])]
    return ", ".join(words)


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise TrainingError(f"{path}: cannot be read: {error}") from None


def minutes_by_step(timing: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Minutes of training until each step that has a row of speed; a later start goes on where the last one ended.

    Args:
        timing: rows of ``timing.jsonl``.
    """
    minutes: dict[int, float] = {}
    spent, last = 0.0, None
    for row in timing:
        if "start" in row:
            last = row["time"]
            spent = minutes.get(row["start"], spent) if row["start"] else 0.0
        elif last is not None:
            spent += (row["time"] - last) / 60
            last = row["time"]
            minutes[row["step"]] = spent
    return minutes


def _at(minutes: dict[int, float], step: int) -> float:
    """Minutes until a step, in proportion between the two rows around it."""
    before = max((known for known in minutes if known <= step), default=None)
    after = min((known for known in minutes if known >= step), default=None)
    if before is None or after is None:
        known = before if after is None else after
        return 0.0 if known is None else minutes[known] * step / known
    share = 0.0 if after == before else (step - before) / (after - before)
    return minutes[before] + share * (minutes[after] - minutes[before])


# --- table and picture -----------------------------------------------------------------------------------------------


def as_markdown(result: dict) -> str:
    """Format the trainings as a table, one row for each recipe, with the mean and deviation over its seeds."""
    lines = [
        "# Finished trainings",
        "",
        "`paircaps bench runs DIR ...`. Accuracy of the test in percent, mean and standard deviation over the seeds; "
        "minutes are those of a training, from its own file of times.",
        "",
        "| data | network | parameters | seeds | accuracy | without other views | minutes | threads | commit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for runs in _groups(result):
        first = runs[0]
        seeds = ", ".join(str(run["seed"]) for run in runs)
        minutes = sorted(run["minutes"] for run in runs)
        spread = (
            f"{minutes[0]:.0f}" if round(minutes[0]) == round(minutes[-1]) else f"{minutes[0]:.0f} to {minutes[-1]:.0f}"
        )
        lines.append(
            f"| {first['data']} | {first['network']} | {first['parameters']:,} | {seeds} | "
            f"{_mean([run['accuracy'] for run in runs])} | {_mean([run['plain_accuracy'] for run in runs])} | "
            f"{spread} | {first['threads']} | {', '.join(sorted({run['commit'] for run in runs}))} |"
        )
    return "\n".join(lines) + "\n"


def _groups(result: dict) -> list[list[dict[str, Any]]]:
    """Trainings with the same settings, together."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in result["runs"]:
        groups.setdefault(run["group"], []).append(run)
    return list(groups.values())


def _mean(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{deviation}"


def draw_runs(result: dict[str, Any]) -> bytes:
    """Draw validation accuracy over minutes, a colour for each recipe and a line for each seed."""
    figure = new_figure(8, 5)
    axis = figure.subplots()
    for number, runs in enumerate(_groups(result)):
        colour = COLOURS[number % len(COLOURS)]
        for place, run in enumerate(runs):
            label = f"{run['network']} ({run['parameters']:,} parameters)" if place == 0 else None
            minutes, values = zip(*run["curve"], strict=True) if run["curve"] else ((), ())
            axis.plot(minutes, values, color=colour, marker="o", ms=3, lw=1.4, label=label)
    axis.set_xlabel("minutes of training")
    axis.set_ylabel("accuracy on images held back, %")
    axis.set_xlim(left=0)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, loc="lower right", frameon=False)
    figure.suptitle(" and ".join(sorted({run["data"] for run in result["runs"]})), fontsize=11)
    return as_png(figure)
