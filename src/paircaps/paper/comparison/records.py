"""Records of trials: a small file each, which is all that is kept of a training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paircaps._utils.files import write_whole
from paircaps._utils.machine import describe_machine
from paircaps.errors import PaircapsError
from paircaps.paper.comparison.design import Trial

RECORDS = "records"
"""Name of the folder of all records, in the folder of the comparison."""


@dataclass(frozen=True)
class TrialRecord:
    """Outcome of a trial.

    Args:
        trial: what was trained.
        parameters: trainable parameters of the network.
        validation: accuracy on held-out training images, 0 to 1, by which learning rates are chosen.
        test: accuracy on test images, 0 to 1.
        loss: mean loss of the test images.
        r2: R² of the true poses, by name, where they were measured.
        failure: why there are no numbers; empty if there are.
        machine: machine, versions and commit.
    """

    trial: Trial
    parameters: int
    validation: float | None
    test: float | None
    loss: float | None
    r2: dict[str, float] | None
    failure: str
    machine: dict[str, Any]

    def save(self, folder: Path) -> None:
        """Write the record into the folder of the comparison."""
        path = record_path(folder, self.trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(asdict(self), indent=2) + "\n").encode())


def failed(trial: Trial, reason: str) -> TrialRecord:
    """TrialRecord of a trial that gave no numbers.

    Args:
        trial: what was trained.
        reason: why it gave none.
    """
    return TrialRecord(trial, trial.parameters, None, None, None, None, reason, dict(describe_machine()))


def record_path(folder: Path, trial: Trial) -> Path:
    """File of a trial's record in the folder of the comparison."""
    return folder / RECORDS / f"{trial.name}.json"


def read_record(path: Path) -> TrialRecord:
    """Read a record.

    Raises:
        PaircapsError: if the file is none, or its place does not fit what it says.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        trial = Trial(**tree["trial"])
        record = TrialRecord(**{**tree, "trial": trial})
        numbers = (record.validation, record.test)
        good = all(isinstance(number, float | int) and 0 <= number <= 1 for number in numbers) or record.failure
        places = path.as_posix().endswith(f"/{RECORDS}/{trial.name}.json")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PaircapsError(f"{path}: no record of a trial ({error}); remove it to train it again") from None
    if not good or not places:
        raise PaircapsError(f"{path}: not the record of this trial; remove it to train it again")
    return record


class Records:
    """All records in a folder, read as they are asked for.

    Args:
        folder: folder of the comparison.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, trial: Trial) -> TrialRecord | None:
        """TrialRecord of a trial, None if there is none yet."""
        path = record_path(self.folder, trial)
        return read_record(path) if path.is_file() else None

    def __iter__(self) -> Iterator[TrialRecord]:
        """All records, in the order of their names."""
        for path in sorted((self.folder / RECORDS).rglob("*.json")):
            yield read_record(path)
