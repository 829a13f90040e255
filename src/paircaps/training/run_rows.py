"""Rows of ``metrics.jsonl`` and ``timing.jsonl``, read back, and the seconds of a training that follow from them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from paircaps.errors import TrainingError

Row = dict[str, Any]


def read_rows(path: Path, *, is_growing: bool = False) -> list[Row]:
    """Read the rows of a ``metrics.jsonl``.

    Args:
        path: the file.
        is_growing: whether a training may be writing to it: a last line without its end is left out then.

    Raises:
        TrainingError: if the file cannot be read, or a line of it is not a row of metrics.
    """
    rows = _read_objects(path, is_growing)
    if not all(isinstance(row, dict) and isinstance(row.get("kind"), str) for row in rows):
        raise TrainingError(f"{path}: is damaged: a line of it is no row of metrics")
    return rows


def read_timing(path: Path, *, is_growing: bool = False) -> list[Row]:
    """Read the rows of a ``timing.jsonl``; arguments and errors as of :func:`read_rows`."""
    rows = _read_objects(path, is_growing)
    if not all(isinstance(row, dict) and _has_time(row) for row in rows):
        raise TrainingError(f"{path}: is damaged: a line of it is no row of times")
    return rows


def _has_time(row: Row) -> bool:
    """Whether a row says when something happened: a start, a step or an end."""
    places = [row[name] for name in ("start", "step", "end") if name in row]
    return _is_number(row.get("time")) and len(places) == 1 and _is_number(places[0])


def _read_objects(path: Path, is_growing: bool) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if is_growing:
            text = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is damaged: a line of it is not JSON"
        raise TrainingError(f"{path}: {reason}") from None


def require_numbers(row: Row, required: Mapping[str, Sequence[str]], optional: Iterable[str] = ()) -> None:
    """Raise a ValueError if a number of a row is missing, below 0, not finite, or an accuracy above 1.

    Args:
        row: row of metrics.
        required: names of numbers that a row must have, by its kind.
        optional: names of numbers that any row may have.
    """
    for name in (*required.get(row["kind"], ()), *(name for name in optional if row.get(name) is not None)):
        value, most = row.get(name), 1 if name.endswith("accuracy") else math.inf
        if not _is_number(value) or not 0 <= cast("float", value) <= most:
            raise ValueError(f"{name}: {value}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# --- seconds ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingSeconds:
    """Time of a training, without the pauses between two starts.

    Args:
        by_step: seconds until each step that has a row.
        total: seconds until the last row; the test is included if the training wrote when it ended.
    """

    by_step: dict[int, float]
    total: float

    def at(self, step: int) -> float:
        """Seconds until a step, in proportion between the two known steps around it; at most until the last one."""
        before = max((known for known in self.by_step if known <= step), default=0)
        after = min((known for known in self.by_step if known >= step), default=before)
        start = self.by_step.get(before, 0.0)
        share = 0.0 if after == before else (step - before) / (after - before)
        return start + share * (self.by_step.get(after, start) - start)


def training_seconds(timing: Sequence[Row]) -> TrainingSeconds | None:
    """Time of a training; None if nothing is known of it.

    A later start goes on from a checkpoint: steps after it that an earlier start did are forgotten, with their time.

    Args:
        timing: rows of ``timing.jsonl``.
    """
    seconds = TrainingSeconds({}, 0.0)
    spent, last = 0.0, None
    for row in timing:
        if "start" in row:
            spent, last = seconds.at(row["start"]), row["time"]
            kept = {step: value for step, value in seconds.by_step.items() if step <= row["start"]}
            seconds = TrainingSeconds(kept, spent)
        elif last is not None:
            spent, last = spent + row["time"] - last, row["time"]
            by_step = seconds.by_step
            by_step.setdefault(row["step"] if "step" in row else row["end"], spent)
            seconds = TrainingSeconds(by_step, spent)
    return seconds if seconds.by_step else None
