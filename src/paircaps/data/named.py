"""Datasets as people name them: by name, or by the path of a folder."""

from __future__ import annotations

import os
from pathlib import Path

from paircaps.data.dataset import ImageDataset
from paircaps.data.errors import DataError
from paircaps.data.metadata import METADATA
from paircaps.data.registry import load_dataset


def is_folder(name: str) -> bool:
    """Whether a name is that of a folder of pictures."""
    return os.sep in name or (bool(name) and name not in METADATA and Path(name).expanduser().is_dir())


def load_named(name: str, split: str, root: Path | None, options: dict[str, object]) -> ImageDataset:
    """A dataset, or a folder of pictures; wrong names and options are the user's, so they are no tracebacks."""
    try:
        if is_folder(name):
            return load_dataset(Path(name), split, None, **options)
        return load_dataset(name, split, root, **options)
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error
