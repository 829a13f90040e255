"""What trainings left behind: their rows of metrics, and how several seeds add up. Nothing here trains or guesses."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paircaps.data.metadata import METADATA
from paircaps.errors import TrainingError
from paircaps.paper.experiments import Experiment, Study, Variant
from paircaps.paper.plan import SEED, all_sources, study_folder
from paircaps.training.datasets import tested_name
from paircaps.training.recipe import Recipe
from paircaps.training.run_folder import RunFolder

NOT_RUN = "not-run.txt"
"""Why there is no result in a folder, in words."""

_NEEDED = {
    "step": ("epoch", "accuracy"),
    "epoch": ("epoch", "train_accuracy"),
    "test": ("accuracy", "images"),
    "time": ("median", "low", "high", "repeats", "seconds"),
}
_POSSIBLE = ("validation_accuracy", "plain_accuracy")
"""Numbers of a row of metrics by its kind, and of any row, that a report shows."""


@dataclass(frozen=True)
class Record:
    """A finished training.

    Args:
        folder: of it.
        recipe: of it.
        rows: of its metrics.
        machine: it was finished on, with versions and commit.
    """

    folder: Path
    recipe: Recipe
    rows: tuple[dict[str, Any], ...]
    machine: dict[str, Any]

    def kind(self, kind: str) -> list[dict[str, Any]]:
        """Its rows of a kind: ``step``, ``epoch`` or ``test``."""
        return [row for row in self.rows if row["kind"] == kind]

    def measure(self, name: str) -> float:
        """``test`` accuracy, or ``train``: that of the last whole epoch, while it learned."""
        if name == "train":
            whole = [row for row in self.kind("epoch") if float(row["epoch"]).is_integer()]
            return float((whole or self.kind("epoch"))[-1]["train_accuracy"])
        return float(self.kind("test")[-1]["accuracy"])

    @property
    def seed(self) -> int:
        """Of the training."""
        return self.recipe.train.seed


@dataclass(frozen=True)
class Summary:
    """A number over seeds.

    Args:
        mean: of them.
        deviation: of them, with n − 1; None of one seed.
        seeds: how many.
    """

    mean: float
    deviation: float | None
    seeds: int

    @property
    def error(self) -> float | None:
        """Standard error of the mean."""
        return None if self.deviation is None else self.deviation / math.sqrt(self.seeds)


def summarise(values: Sequence[float]) -> Summary:
    """Mean and deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Summary(statistics.fmean(values), deviation, len(values))


@dataclass(frozen=True)
class Cell:
    """What there is of one network on one dataset.

    Args:
        experiment: it belongs to.
        study: the paper's data.
        data: that was used.
        is_stand_in: whether that is other data than the paper's.
        variant: the network.
        records: finished trainings, by seed.
        reason: why there are none, or fewer; empty if nothing is to be said.
    """

    experiment: Experiment
    study: Study
    data: str
    is_stand_in: bool
    variant: Variant
    records: tuple[Record, ...]
    reason: str = ""


def read_record(path: Path) -> Record | None:
    """A finished training, or None where there is no such thing.

    Raises:
        TrainingError: if a file of it is damaged.
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
            _require_numbers(row)
        record = Record(path, folder.read_recipe(), tuple(rows), machine)
        _ = [METADATA[name] for name in (record.recipe.data.name, tested_name(record.recipe.data))]
        _ = [record.measure(name) for name in ("train", "test")]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        raise TrainingError(
            f"{path}: {folder.model.name}, {folder.metrics.name} or {folder.config.name} is damaged"
        ) from None
    return record


def _require_numbers(row: dict[str, Any]) -> None:
    """Refuse a row of metrics whose numbers a report cannot show."""
    names = [*_NEEDED.get(row["kind"], ()), *(name for name in _POSSIBLE if row.get(name) is not None)]
    for name in names:
        value, most = row[name], 1 if name.endswith("accuracy") else math.inf
        if type(value) not in (int, float) or not 0 <= value <= most or math.isinf(value):
            raise ValueError(f"{name}: {value}")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a file of JSON lines.

    Raises:
        TrainingError: if it is none.
    """
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is damaged: a line of it is not JSON"
        raise TrainingError(f"{path}: {reason}") from None
    if not all(isinstance(row, dict) and isinstance(row.get("kind"), str) for row in rows):
        raise TrainingError(f"{path}: is damaged: a line of it is no row of metrics")
    return rows


def read_times(path: Path) -> dict[str, dict[str, Any]]:
    """Rows of times by variant; none where nothing was measured, or what was is damaged."""
    try:
        rows = read_rows(path) if path.exists() else []
        times = {str(row["variant"]): row for row in rows if row["kind"] == "time"}
        for row in times.values():
            _require_numbers(row)
            _ = dict(row.get("settings", {}))
        return times if any(row["kind"] == "machine" for row in rows) else {}
    except (TrainingError, KeyError, TypeError, ValueError):
        return {}


def read_cell(out: Path, experiment: Experiment, study: Study, variant: Variant) -> Cell:
    """What there is in a folder of results: of the paper's data, or else of its best stand-in that was run."""
    sources = all_sources(study)
    for source in sources:
        place = study_folder(out, experiment, source.data) / variant.name
        records, told = _read_seeds(place)
        if records:
            return Cell(experiment, study, source.data, source.is_stand_in, variant, tuple(records), told)
    reasons = [
        reason
        for source in sources
        for place in [study_folder(out, experiment, source.data)]
        if (reason := read_reason(place) or _read_seeds(place / variant.name)[1])
    ]
    return Cell(experiment, study, study.data, False, variant, (), reasons[0] if reasons else "not run")


def read_reason(folder: Path) -> str:
    """Why nothing was run in a folder; empty if that is not told."""
    try:
        return (folder / NOT_RUN).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _read_seeds(place: Path) -> tuple[list[Record], str]:
    """Finished trainings of a network, and what is to be said of those that are not."""
    records, told, unfinished = [], [], []
    for path in seed_folders(place):
        seed = path.name.removeprefix(SEED)
        try:
            record = read_record(path)
        except TrainingError:
            told.append(f"seed {seed}: a file of it is damaged; `paircaps reproduce` makes it again")
            continue
        if record is not None:
            records.append(record)
        elif read_reason(path):
            told.append(f"seed {seed}: {read_reason(path)}")
        else:
            unfinished.append(seed)
    if unfinished:
        told.append(f"not finished: seed {', '.join(unfinished)}")
    return records, "; ".join(told)


def seed_folders(place: Path) -> list[Path]:
    """Folders of the trainings of a network, by seed."""
    if not place.is_dir():
        return []
    folders = [path for path in place.glob(f"{SEED}*") if path.is_dir() and path.name.removeprefix(SEED).isdecimal()]
    return sorted(folders, key=lambda path: int(path.name.removeprefix(SEED)))
