"""The folder of a run: names of its files, its lock, and its checkpoints' folders."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from paircaps._utils.extras import extra_imports
from paircaps._utils.files import is_partial
from paircaps.errors import FolderBusyError, ModelFileError, RecipeError, TrainingError
from paircaps.model_files import METADATA as MODEL_METADATA
from paircaps.model_files import WEIGHTS as MODEL_WEIGHTS
from paircaps.model_files import plugin_sentence, read_metadata
from paircaps.training.recipe import Recipe
from paircaps.training.recipe_io import (
    RecipeTree,
    parse_toml,
    recipe_from_tree,
    with_keys_of_run,
    with_present_keys,
)

with extra_imports("training"):
    from filelock import FileLock, Timeout

_LOCK, _OWNER = ".lock", ".lock-owner"
_CHECKPOINT = re.compile(r"step-(\d{8,})")
_LEFTOVER = re.compile(r"\.(partial|old)-.*")


@dataclass(frozen=True)
class RunFolder:
    """Paths of everything in the folder of a run.

    Args:
        path: where the run is.
        lock: device and inode of the lock that this process holds; None if it only reads.
    """

    path: Path
    lock: tuple[int, int] | None = None

    @property
    def config(self) -> Path:
        """The resolved recipe."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """Rows of metrics, the same in every repetition of the run."""
        return self.path / "metrics.jsonl"

    @property
    def timing(self) -> Path:
        """Rows of times and speeds."""
        return self.path / "timing.jsonl"

    @property
    def skipped(self) -> Path:
        """Damaged pictures that were left out, one a line with the reason; it is there if there were some."""
        return self.path / "skipped.txt"

    @property
    def events(self) -> Path:
        """Folder of TensorBoard events."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints, each a folder of its own."""
        return self.path / "checkpoints"

    @property
    def failure(self) -> Path:
        """Batch and state of a step whose loss or gradient was not finite."""
        return self.path / "failure"

    @property
    def model(self) -> Path:
        """Description of the trained network; it is there once the run is finished."""
        return self.path / MODEL_METADATA

    def everything(self) -> tuple[Path, ...]:
        """Everything that a run writes, except its lock."""
        files = (self.model, self.path / MODEL_WEIGHTS, self.metrics, self.timing, self.skipped)
        return (*files, self.events, self.failure, self.checkpoints, self.config)

    def require_held(self) -> None:
        """Raise a TrainingError if the lock was removed or replaced: another training may be writing here by now."""
        if self.lock is not None and _identity(self.path / _LOCK) != self.lock:
            raise TrainingError(
                f"{self.path}: its lock, {_LOCK}, was removed while this training held it, so another may be writing "
                "to the folder. This one stops; checkpoints are as they were"
            )

    def is_begun(self) -> bool:
        """True if a run began here: a recipe alone, refused before the first step, may be replaced by another."""
        return any(path.exists() for path in self.everything() if path != self.config)

    def begun_recipe(self) -> Recipe | None:
        """The recipe of the run that began here; None if none did."""
        return self.read_recipe() if self.config.exists() and self.is_begun() else None

    def has_recipe(self) -> bool:
        """True if the recipe is known: of a run by ``config.toml``, of shipped weights by their ``model.json``."""
        return self.config.exists() or self._recipe_of_model() is not None

    def read_recipe(self) -> Recipe:
        """The recipe of the run in this folder, or the one that shipped weights name in their ``model.json``.

        Raises:
            TrainingError: if ``config.toml`` cannot be read or is not a recipe.
        """
        of_model = None if self.config.exists() else self._recipe_of_model()
        file = self.config if of_model is None else self.model
        try:
            tree = self._parse_config() if of_model is None else with_present_keys(of_model)
            recipe = recipe_from_tree(with_keys_of_run(tree))
        except RecipeError as error:
            needed = plugin_sentence(self.path)
            if not needed and "unknown" in str(error):  # a run that is not finished has not recorded its plug-ins
                needed = ". If a plug-in brings it, name that with --plugin or in the variable PAIRCAPS_PLUGINS"
            raise TrainingError(f"{file}: no recipe of this version of paircaps: {error}{needed}") from None
        # runs of today say how their folders are split; earlier ones split by content
        return replace(recipe, data=recipe.data.split_by("content"))

    def _parse_config(self) -> RecipeTree:
        """Sections and keys of ``config.toml``."""
        try:
            text = self.config.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise TrainingError(f"{self.config}: cannot read the recipe of this run: {reason}") from None
        return parse_toml(text, str(self.config))

    def _recipe_of_model(self) -> RecipeTree | None:
        """Sections and keys of the recipe in ``model.json``; None if it has none, or there is no such file."""
        try:
            trained = read_metadata(self.path).get("trained")
        except ModelFileError:
            return None
        recipe = trained.get("recipe") if isinstance(trained, dict) else None
        return recipe if isinstance(recipe, dict) else None


@contextmanager
def locked_folder(path: Path) -> Iterator[RunFolder]:
    """Create and lock the folder of a run; the lock is the operating system's, so it ends with its process.

    Args:
        path: folder of the run.

    Raises:
        TrainingError: if the folder cannot be written to, or another training is writing to it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):  # a read-only disk shows here, even for root
            pass
        lock = FileLock(path / _LOCK)
        lock.acquire(blocking=False)
    except Timeout:
        raise FolderBusyError(f"{path}: another training is writing to this folder{_owner(path)}") from None
    except (FileExistsError, NotADirectoryError):
        raise TrainingError(f"{path}: is a file; --out takes a folder") from None
    except OSError as error:
        raise TrainingError(f"{path}: cannot write to this folder: {error.strerror or error}") from None
    held = _identity(path / _LOCK)
    try:
        with contextlib.suppress(OSError):  # only for the message of a second training
            (path / _OWNER).write_text(f"process {os.getpid()} on {socket.gethostname()}")
        yield RunFolder(path, held)
    finally:
        if _identity(path / _LOCK) == held:  # else the note is another training's
            (path / _OWNER).unlink(missing_ok=True)
        lock.release()  # its file stays: removing it would race with the next training


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode of a file, which no other file has while it is open; zeros if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _owner(path: Path) -> str:
    try:
        return f", {(path / _OWNER).read_text()}"
    except OSError:
        return ""


def remove_partial(folder: RunFolder) -> None:
    """Remove temporary files that a killed process left."""
    names = [path.name for path in folder.everything()]
    for path in folder.path.iterdir():
        if any(is_partial(path.name, name) for name in names):
            path.unlink(missing_ok=True)


def clear(folder: RunFolder) -> None:
    """Remove all that a run writes, the recipe last; other files stay, also in the subfolders."""
    for path in (folder.model, folder.path / MODEL_WEIGHTS, folder.metrics, folder.timing, folder.skipped):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder.failure, ignore_errors=True)
    remove_checkpoints(folder.checkpoints, keep=())
    for events in folder.events.glob("events.out.tfevents.*"):
        events.unlink()
    for path in (folder.checkpoints, folder.events):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    folder.config.unlink(missing_ok=True)


def existing_folder(path: Path) -> RunFolder:
    """The folder of a run, for reading.

    Raises:
        TrainingError: if there is no such folder.
    """
    if not path.is_dir():
        raise TrainingError(f"{path}: no such folder")
    return RunFolder(path)


def find_runs(places: Iterable[Path]) -> dict[str, Path]:
    """Folders of runs by name, finished or not, each once however often it was given.

    A run's name is that of its folder, with as many of the folders above it as tell all runs apart. Places without a
    run are named in a warning, because a pattern such as ``runs/*`` also matches files and other folders.

    Args:
        places: folders of runs, or folders that contain some at any depth; those in one place come in the order of
            their names.

    Raises:
        TrainingError: if a place does not exist, or none has a run.
    """
    found: dict[Path, Path] = {}  # by where it is, whatever way it was named
    without = []
    for place in places:
        place = place.expanduser()
        if not place.exists():
            raise TrainingError(f"{place}: no such folder")
        inside = _runs_inside(place) if place.is_dir() else []
        without += [] if inside else [str(place)]
        for folder in inside:
            found.setdefault(folder.resolve(), folder)
    if not found:
        raise TrainingError(f"{', '.join(without) or 'nothing'}: no run of a training, and no folder that contains one")
    if without:
        more = f" and {len(without) - 3} others" if len(without) > 3 else ""
        warnings.warn(f"no run of a training in {', '.join(without[:3])}{more}", stacklevel=2)
    return dict(zip(_short_names(list(found)), found.values(), strict=True))


def _runs_inside(place: Path) -> list[Path]:
    """The place itself if it is a run, else all runs below it, without hidden folders and links to other folders."""
    if _is_run(place):
        return [place]
    inner = [entry for entry in place.iterdir() if not entry.name.startswith(".") and entry.is_dir()]
    inner = [entry for entry in inner if _is_run(entry) or not entry.is_symlink()]  # links may go round in circles
    return [run for entry in sorted(inner, key=_natural) for run in _runs_inside(entry)]


def _is_run(path: Path) -> bool:
    folder = RunFolder(path)
    return folder.model.exists() or (folder.config.exists() and folder.is_begun())


def _natural(path: Path) -> list[tuple[int, str]]:
    """Key for sorting by name, with the numbers in it as numbers: ``seed-2`` comes before ``seed-10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of each path, as few as tell it from the others, and as many for all in one folder."""
    parts: dict[Path, int] = {}  # by the folder above
    for path in paths:
        others = [other.parts for other in paths if other != path]
        enough = next(n for n in range(1, len(path.parts) + 1) if all(o[-n:] != path.parts[-n:] for o in others))
        parts[path.parent] = max(enough, parts.get(path.parent, 1))
    return [str(Path(*path.parts[-parts[path.parent] :])) for path in paths]


# --- folders of checkpoints ------------------------------------------------------------------------------------------


def checkpoint_path(folder: Path, step: int) -> Path:
    """Folder of the checkpoint of a step, within the folder of all checkpoints."""
    return folder / f"step-{step:08d}"


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, damaged or not, the newest first."""
    if not folder.is_dir():
        return []
    found = [int(match[1]) for entry in folder.iterdir() if (match := _CHECKPOINT.fullmatch(entry.name))]
    return sorted(found, reverse=True)


def remove_checkpoints(folder: Path, keep: Collection[int]) -> None:
    """Remove all checkpoints except those of some steps; a killed process leaves none half removed.

    Args:
        folder: where the checkpoints of the run are.
        keep: steps whose checkpoints stay.
    """
    for step in checkpoint_steps(folder):
        if step not in keep:
            put_aside(checkpoint_path(folder, step))
    remove_leftovers(folder)


def put_aside(path: Path) -> None:
    """Rename a checkpoint so that it no longer counts as one; :func:`remove_leftovers` removes it."""
    path.rename(path.with_name(f".old-{path.name}-{secrets.token_hex(4)}"))


def remove_leftovers(folder: Path) -> None:
    """Remove checkpoints that were put aside and those that a killed process was writing."""
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        if _LEFTOVER.fullmatch(entry.name):
            shutil.rmtree(entry.path, ignore_errors=True)
