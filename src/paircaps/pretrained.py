"""Trained networks that come with the project: which there are, and what is known of them.

Small ones lie inside the package, larger ones in the folder ``weights`` of the repository; the variable
``PAIRCAPS_WEIGHTS`` names folders of further ones. :func:`paircaps.load` loads one by its name, and the argument
``pretrained`` of :func:`paircaps.create_model` gives its weights to a model. Nothing here imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paircaps._utils.model_folder import CARD, WEIGHTS, read_metadata
from paircaps._utils.shipped import METADATA, shipped_folders, why_unknown
from paircaps.errors import ModelFileError

__all__ = [
    "ShippedWeights",
    "list_weights",
    "weights_folder",
]


@dataclass(frozen=True)
class ShippedWeights:
    """A trained network that comes with the project.

    Args:
        name: name of the network.
        folder: where its files are.
        model: name of its model.
        routing: name of its routing; None of a network without capsules.
        data: dataset that it was trained on.
        licence: terms of use of that data.
        tested_on: dataset that it was tested on.
        images: number of test images.
        accuracy: accuracy on these, in 0..1, of the weights as they are stored.
        parameters: parameters of the model, without the decoder.
        decoder: whether it has a decoder.
        stored: precision of the stored weights, ``"fp32"`` or ``"bf16"``.
        seed: seed of the training.
        recipe: name of the recipe, or a recipe and what was changed in it.
        command: command that trains it again.
        commit: commit of the code that trained it.
        sha256: SHA-256 of its file of weights.
        size: bytes of that file.
    """

    name: str
    folder: Path
    model: str
    routing: str | None
    data: str
    licence: str
    tested_on: str
    images: int
    accuracy: float
    parameters: int
    decoder: bool
    stored: str
    seed: int
    recipe: str
    command: str
    commit: str
    sha256: str
    size: int

    @property
    def card(self) -> str:
        """The model card, as Markdown.

        Raises:
            ModelFileError: if there is none, or it cannot be read.
        """
        path = self.folder / CARD
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
            raise ModelFileError(f"{path}: cannot read the card: {reason}") from None


def list_weights() -> list[ShippedWeights]:
    """All trained networks that come with the project and are on this machine, by name.

    >>> [weights.model for weights in list_weights() if weights.name == "glyphs"]
    ['resnet-caps-small']

    Raises:
        ModelFileError: if the ``model.json`` of one is damaged, or does not describe shipped weights.
    """
    return [_described(name, folder) for name, folder in shipped_folders().items()]


def find_weights(name: str) -> ShippedWeights:
    """What is known of the network of a name.

    Args:
        name: name of the network.

    Raises:
        ModelFileError: as :func:`weights_folder`, or if its ``model.json`` is damaged.
    """
    return _described(name, weights_folder(name))


def weights_folder(name: str) -> Path:
    """Folder of a trained network that comes with the project.

    >>> sorted(file.name for file in weights_folder("glyphs").iterdir())
    ['README.md', 'model.json', 'model.safetensors']

    Args:
        name: name of the network.

    Raises:
        ModelFileError: if there is none of that name; the message says which there are.
    """
    folders = shipped_folders()
    if name not in folders:
        reason = why_unknown(name) or f"is no name of weights. Here are {', '.join(folders) or 'none'}"
        raise ModelFileError(f"{name}: {reason.removeprefix('and ')}")
    return folders[name]


def _described(name: str, folder: Path) -> ShippedWeights:
    """What the files in a folder say of its network."""
    metadata = read_metadata(folder)
    try:
        card, trained = metadata["card"], metadata["trained"]
        evaluation = card["evaluation"]
        return ShippedWeights(
            name=name,
            folder=folder,
            model=str(metadata["model"]),
            routing=_text_or_none(card["routing"]),
            data=str(card["data"]["name"]),
            licence=str(card["data"]["licence"]),
            tested_on=str(evaluation["data"]),
            images=int(evaluation["images"]),
            accuracy=float(evaluation["accuracy"]),
            parameters=int(card["parameters"]),
            decoder=metadata["decoder"] != "none",
            stored=str(card["stored"]),
            seed=int(trained["seed"]),
            recipe=_recipe_in_words(card),
            command=str(card["command"]),
            commit=str(trained["machine"]["commit"]),
            sha256=metadata["sha256"],
            size=(folder / WEIGHTS).stat().st_size,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{folder / METADATA}: does not describe weights as `paircaps weights add` writes them: {error}"
        ) from None
    except OSError as error:
        raise ModelFileError(f"{folder / WEIGHTS}: cannot read: {error.strerror or error}") from None


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _recipe_in_words(card: Mapping[str, Any]) -> str:
    """Name of the recipe with the keys that were changed: ``digits, model.name resnet-pool-small``."""
    return ", ".join([str(card["recipe"]), *(f"{key} {value}" for key, value in card["changed"].items())])
