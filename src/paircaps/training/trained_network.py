"""A trained network with the loss and the views of its training, to be evaluated as it was tested."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paircaps.errors import ModelFileError
from paircaps.losses import Loss, Objective
from paircaps.model_files import load, read_metadata


def load_objective(folder: Path) -> tuple[Objective, str]:
    """Load a network with the loss that it was trained for, and the views that its training tested with.

    Args:
        folder: folder of a trained network.

    Returns:
        network with its loss, and the name of the views.

    Raises:
        ModelFileError: if the files are missing or damaged, or do not say what loss it was trained for.
    """
    network = load(folder)
    trained = read_metadata(folder).get("trained", {})
    return Objective(network, _loss(trained, folder)), _views(trained)


def _views(trained: Mapping[str, Any]) -> str:
    """The views that the training tested with; earlier versions wrote ``mirror`` for ``flip``."""
    return trained.get("views", "flip" if trained.get("mirror") else "none")


def _loss(trained: Mapping[str, Any], folder: Path) -> Loss:
    try:
        return Loss(**trained["loss"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{folder}: model.json does not say what loss it was trained for: {error}") from None
