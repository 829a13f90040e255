"""The dataset that a command is given by name, or that a run was tested on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from paircaps.data import ImageDataset, load_dataset
from paircaps.data.errors import wrong_input_as_data_error
from paircaps.data.registry import folder_path
from paircaps.data.sources.folder import SPLITS, WHOLE
from paircaps.network import Network
from paircaps.training.datasets import own_dataset


def load_typed_dataset(name: str, split: str, root: Path | None, options: Mapping[str, object]) -> ImageDataset:
    """Load a dataset as a user typed it; a wrong name or option is an error without a traceback.

    Args:
        name: name of a dataset, or a folder of pictures, also one without a ``/`` in its name.
        split: split of the dataset.
        root: data folder to look in first; not used for a folder of pictures.
        options: options of the dataset.
    """
    folder = folder_path(name, bare=True)
    with wrong_input_as_data_error():
        return load_dataset(folder or name, split, None if folder else root, **options)


def named_or_own(network: Network, folder: Path, options: argparse.Namespace, split: str | None) -> ImageDataset:
    """The dataset of ``--data``, or else the one that the run in a folder was tested on, with the same options.

    The pictures of a folder that ``--data`` names are fitted as those of the training.

    Args:
        network: the trained network.
        folder: where the run is.
        options: those of the command: ``data``, ``data_dir`` and ``option``.
        split: ``"train"`` or ``"test"``; None for the test split, or for all pictures of a folder that ``--data`` names
            and that has none.
    """
    given = dict(options.option)
    if options.data is None:
        return own_dataset(folder, split or "test", options.data_dir, given)
    pictures = folder_path(options.data, bare=True)
    if pictures is None:
        return load_typed_dataset(options.data, split or "test", options.data_dir, given)
    whole = WHOLE if not any((pictures / name).is_dir() for name in SPLITS) else "test"
    return load_typed_dataset(options.data, split or whole, options.data_dir, _as_trained(network) | given)


def _as_trained(network: Network) -> dict[str, object]:
    """Options of a folder of pictures that make its images those that the network was trained for."""
    wanted = network.spec.preparation
    return {"image_size": wanted.size, "channels": wanted.channels, **asdict(network.fitting())}


def say_other_fitting(network: Network, options: argparse.Namespace) -> None:
    """Print a note if ``--fit`` or ``--invert`` differs from what the network was trained with."""
    known = network.spec.preparation.fitting
    if known is None:
        return
    asked = known.changed(options.fit, options.invert)
    for what, before, after in (("fit", known.fit, asked.fit), ("invert", known.invert, asked.invert)):
        if before != after:
            print(f"paircaps: note: {what} {after!r}, where the network's own is {before!r}", file=sys.stderr)
