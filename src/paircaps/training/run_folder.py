"""The folder of a run: what lies where, who may write, and whether it is the same run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from paircaps._utils.files import write_whole
from paircaps.errors import FolderBusyError, RecipeError, TrainingError
from paircaps.model_files import FACTS as MODEL_FACTS
from paircaps.model_files import WEIGHTS as MODEL_WEIGHTS
from paircaps.training.checkpoint_files import prune
from paircaps.training.recipe import Recipe
from paircaps.training.recipe_io import differences, parse_toml, recipe_from_tree, to_toml

_LOCK, _OWNER = ".lock", ".lock-owner"


@dataclass(frozen=True)
class RunFolder:
    """Names of everything in the folder of a run."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved recipe."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """Rows that are the same in every repetition."""
        return self.path / "metrics.jsonl"

    @property
    def timing(self) -> Path:
        """Rows of when and how fast."""
        return self.path / "timing.jsonl"

    @property
    def events(self) -> Path:
        """Of TensorBoard."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """A folder each."""
        return self.path / "checkpoints"

    @property
    def failure(self) -> Path:
        """The batch and state of a step whose loss was not finite."""
        return self.path / "failure"

    @property
    def model(self) -> Path:
        """There once the run is finished."""
        return self.path / MODEL_FACTS

    def everything(self) -> tuple[Path, ...]:
        """All that a run writes, but its lock."""
        files = (self.model, self.path / MODEL_WEIGHTS, self.metrics, self.timing)
        return (*files, self.events, self.failure, self.checkpoints, self.config)

    def is_begun(self) -> bool:
        """Whether more than a recipe is here: settings that were refused before the first step bind nobody."""
        return any(path.exists() for path in self.everything() if path != self.config)

    def read_recipe(self) -> Recipe:
        """The recipe of the run that is here."""
        try:
            text = self.config.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise TrainingError(f"{self.config}: cannot read the recipe of this run: {reason}") from None
        try:
            return recipe_from_tree(parse_toml(text, str(self.config)))
        except RecipeError as error:
            raise TrainingError(f"{self.config}: no recipe of this version of paircaps: {error}") from None


@contextmanager
def locked_folder(path: Path) -> Iterator[RunFolder]:
    """A folder that one training may write to; the lock is the operating system's, so it dies with its process.

    Raises:
        TrainingError: if it cannot be written to, or another training is writing to it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):  # even root finds out here about a read-only disk
            pass
        lock = FileLock(path / _LOCK)
        lock.acquire(blocking=False)
    except Timeout:
        raise FolderBusyError(f"{path}: another training is writing to this folder{_owner(path)}") from None
    except (FileExistsError, NotADirectoryError):
        raise TrainingError(f"{path}: is a file; --out takes a folder") from None
    except OSError as error:
        raise TrainingError(f"{path}: cannot write to this folder: {error.strerror or error}") from None
    try:
        with contextlib.suppress(OSError):  # a courtesy
            (path / _OWNER).write_text(f"process {os.getpid()} on {socket.gethostname()}")
        yield RunFolder(path)
    finally:
        (path / _OWNER).unlink(missing_ok=True)
        lock.release()  # its file stays: to remove it is a race with whoever comes next


def _owner(path: Path) -> str:
    try:
        return f", {(path / _OWNER).read_text()}"
    except OSError:
        return ""


def prepare(folder: RunFolder, recipe: Recipe, fresh: bool) -> None:
    """See that the folder holds this run or none, and write its recipe down.

    Raises:
        TrainingError: if another recipe's run is here; the message shows where they differ. Or if what is here was not
            written by a training: that is never removed.
    """
    remove_partial(folder)
    if folder.config.exists() and folder.is_begun():
        found = differences(folder.read_recipe(), recipe)
        if found and not fresh:
            raise TrainingError(
                f"{folder.path}: holds a run of another recipe. --fresh starts over, or take another --out. "
                "It differs in\n  " + "\n  ".join(found)
            )
        if not fresh:
            return
        clear(folder)
    strangers = [path.name for path in folder.everything() if path.exists() and path != folder.config]
    if strangers:
        raise TrainingError(
            f"{folder.path}: holds {', '.join(strangers)}, but not of a run that could go on or be removed. "
            "Take another --out, or remove them yourself"
        )
    write_whole(folder.config, to_toml(recipe).encode())


def remove_partial(folder: RunFolder) -> None:
    """Remove files that a killed process was writing under a temporary name."""
    names = "|".join(re.escape(path.name) for path in folder.everything())
    for path in folder.path.iterdir():
        if re.fullmatch(rf"\.({names})\.\d+\.[0-9a-f]{{8}}", path.name):
            path.unlink(missing_ok=True)


def clear(folder: RunFolder) -> None:
    """Remove all that a run writes, the recipe last; other files stay, in its folders too."""
    for path in (folder.model, folder.path / MODEL_WEIGHTS, folder.metrics, folder.timing):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder.failure, ignore_errors=True)
    prune(folder.checkpoints, keep=())
    for events in folder.events.glob("events.out.tfevents.*"):
        events.unlink()
    for path in (folder.checkpoints, folder.events):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    folder.config.unlink(missing_ok=True)


def existing_folder(path: Path) -> RunFolder:
    """The folder of a run that is only looked at."""
    if not path.is_dir():
        raise TrainingError(f"{path}: no such folder")
    return RunFolder(path)
