"""Results of finished trainings of the paper's experiments, read from their folders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paircaps.data.errors import DataError
from paircaps.data.registry import require_metadata
from paircaps.errors import TrainingError
from paircaps.model_files import missing_plugins
from paircaps.paper.experiments import Experiment, Study, Variant
from paircaps.paper.plan import SEED_PREFIX, candidate_data, study_folder
from paircaps.training.datasets import tested_name
from paircaps.training.recipe import Recipe
from paircaps.training.run_folder import RunFolder
from paircaps.training.run_rows import read_rows, require_numbers

NOT_RUN = "not-run.txt"
"""Name of the file that says why a folder has no result."""

_REQUIRED_NUMBERS = {
    "step": ("epoch", "accuracy"),
    "epoch": ("epoch", "train_accuracy"),
    "test": ("accuracy", "images"),
    "time": ("median", "low", "high", "repeats", "seconds"),
}
_OPTIONAL_NUMBERS = ("validation_accuracy", "plain_accuracy")
"""Numbers that a row of metrics must have, by its kind, and numbers that any row may have: a report shows them."""


@dataclass(frozen=True)
class Record:
    """A finished training.

    Args:
        folder: where its files are.
        recipe: its recipe.
        rows: rows of its ``metrics.jsonl``.
        machine: machine on which it was finished, with versions and commit.
    """

    folder: Path
    recipe: Recipe
    rows: tuple[dict[str, Any], ...]
    machine: dict[str, Any]

    def rows_of(self, kind: str) -> list[dict[str, Any]]:
        """Rows of one kind: ``step``, ``epoch`` or ``test``."""
        return [row for row in self.rows if row["kind"] == kind]

    def accuracy(self, measure: str) -> float:
        """Accuracy in 0..1: ``test``, or ``train``, which is that of the last whole epoch during training."""
        if measure == "train":
            whole = [row for row in self.rows_of("epoch") if float(row["epoch"]).is_integer()]
            return float((whole or self.rows_of("epoch"))[-1]["train_accuracy"])
        return float(self.rows_of("test")[-1]["accuracy"])

    @property
    def seed(self) -> int:
        """Seed of the training."""
        return self.recipe.train.seed


@dataclass(frozen=True)
class Cell:
    """Results of one network on one dataset: what a cell of a report's table shows.

    Args:
        experiment: experiment that it belongs to.
        study: study with the paper's dataset.
        data: name of the dataset that was used.
        is_stand_in: whether that is another dataset than the paper's.
        variant: the network.
        records: finished trainings, in the order of their seeds.
        reason: why there are none, or fewer than were asked for; empty if there is nothing to say.
    """

    experiment: Experiment
    study: Study
    data: str
    is_stand_in: bool
    variant: Variant
    records: tuple[Record, ...]
    reason: str = ""


def read_record(path: Path) -> Record | None:
    """Read a finished training; None if the folder has none.

    Args:
        path: folder of the training.

    Raises:
        TrainingError: if one of its files is damaged.
    """
    folder = RunFolder(path)
    if not (folder.config.exists() and folder.metrics.exists() and folder.model.exists()):
        return None
    rows = read_rows(folder.metrics)
    if not any(row.get("kind") == "test" for row in rows):
        return None
    try:
        machine = dict(json.loads(folder.model.read_text(encoding="utf-8"))["trained"]["machine"])
        for row in rows:
            require_numbers(row, _REQUIRED_NUMBERS, _OPTIONAL_NUMBERS)
        record = Record(path, folder.read_recipe(), tuple(rows), machine)
        _ = [require_metadata(name) for name in (record.recipe.data.name, tested_name(record.recipe.data))]
        _ = [record.accuracy(name) for name in ("train", "test")]
    except (DataError, OSError, ValueError, KeyError, TypeError, IndexError):
        raise TrainingError(
            f"{path}: {folder.model.name}, {folder.metrics.name} or {folder.config.name} is damaged"
        ) from None
    return record


def read_times(path: Path) -> dict[str, dict[str, Any]]:
    """Read the rows of measured times, by variant; none if nothing was measured or the file is damaged."""
    try:
        rows = read_rows(path) if path.exists() else []
        times = {str(row["variant"]): row for row in rows if row["kind"] == "time"}
        for row in times.values():
            require_numbers(row, _REQUIRED_NUMBERS, _OPTIONAL_NUMBERS)
            _ = dict(row.get("settings", {}))
        return times if any(row["kind"] == "machine" for row in rows) else {}
    except (TrainingError, KeyError, TypeError, ValueError):
        return {}


def read_cell(out: Path, experiment: Experiment, study: Study, variant: Variant) -> Cell:
    """Read the results of one network: on the paper's dataset, or else on the best stand-in that was run.

    Args:
        out: folder of all results.
        experiment: experiment to read.
        study: study with the paper's dataset.
        variant: the network.
    """
    candidates = candidate_data(study)
    for study_data in candidates:
        place = study_folder(out, experiment, study_data.dataset) / variant.name
        records, remarks = _read_seeds(place)
        if records:
            return Cell(experiment, study, study_data.dataset, study_data.is_stand_in, variant, tuple(records), remarks)
    reasons = [
        reason
        for study_data in candidates
        for place in [study_folder(out, experiment, study_data.dataset)]
        if (reason := read_reason(place) or _read_seeds(place / variant.name)[1])
    ]
    return Cell(experiment, study, study.data, False, variant, (), reasons[0] if reasons else "not run")


def read_reason(folder: Path) -> str:
    """Read why a folder has no result; empty if no reason was written."""
    try:
        return (folder / NOT_RUN).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _read_seeds(place: Path) -> tuple[list[Record], str]:
    """Finished trainings of a network, and remarks on those that are damaged, failed or unfinished."""
    records, remarks, unfinished = [], [], []
    for path in seed_folders(place):
        seed = path.name.removeprefix(SEED_PREFIX)
        try:
            record = read_record(path)
        except TrainingError:
            missing = missing_plugins(path)
            damaged = "a file of it is damaged; `paircaps reproduce` makes it again"
            remarks.append(f"seed {seed}: {f'needs --plugin {missing[0]}' if missing else damaged}")
            continue
        if record is not None:
            records.append(record)
        elif read_reason(path):
            remarks.append(f"seed {seed}: {read_reason(path)}")
        else:
            unfinished.append(seed)
    if unfinished:
        remarks.append(f"not finished: seed {', '.join(unfinished)}")
    return records, "; ".join(remarks)


def seed_folders(place: Path) -> list[Path]:
    """Folders of a network's trainings, in the order of their seeds.

    Args:
        place: folder of the network.
    """
    if not place.is_dir():
        return []
    folders = [
        path
        for path in place.glob(f"{SEED_PREFIX}*")
        if path.is_dir() and path.name.removeprefix(SEED_PREFIX).isdecimal()
    ]
    return sorted(folders, key=lambda path: int(path.name.removeprefix(SEED_PREFIX)))
