"""The dataset that a command is given by name, or that a run was tested on."""

from __future__ import annotations

import argparse
from pathlib import Path

from paircaps.data import ImageDataset
from paircaps.data.named import load_named
from paircaps.training.datasets import own_dataset


def named_or_own(folder: Path, options: argparse.Namespace, split: str) -> ImageDataset:
    """The dataset of ``--data``, or else the one that the run in a folder was tested on, with the same options.

    Args:
        folder: where the run is.
        options: those of the command: ``data``, ``data_dir`` and ``option``.
        split: ``"train"`` or ``"test"``.
    """
    given = dict(options.option)
    if options.data is not None:
        return load_named(options.data, split, options.data_dir, given)
    return own_dataset(folder, split, options.data_dir, given)
