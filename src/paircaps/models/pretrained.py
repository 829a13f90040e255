"""Weights of a trained network for :func:`paircaps.create_model`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paircaps._utils.model_folder import WEIGHTS, read_metadata, require_own_card
from paircaps._utils.shipped import METADATA, path_or_shipped, shipped_folders
from paircaps._utils.tensor_files import opened_weights, read_tensor
from paircaps.errors import ModelFileError

_PREFIX = "model."
"""What the names of the model's tensors begin with; those of a decoder begin otherwise."""

_MUST_EQUAL = ("num_classes", "in_channels", "routing")
"""Arguments that a model shares with the network whose weights it gets."""


@dataclass(frozen=True)
class PretrainedWeights:
    """Weights of the model of a trained network.

    Args:
        name: name or folder by which they were asked for.
        model: name of their model.
        arguments: arguments that their model was built with.
        tensors: the tensors of its state by name.
    """

    name: str
    model: str
    arguments: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @classmethod
    def read(cls, name: str | Path) -> PretrainedWeights:
        """Read weights by the name of a network that comes with the project, or from the folder of a trained one.

        Args:
            name: name or folder.

        Raises:
            TypeError: if the name is of another type, such as True.
            ModelFileError: if there are none, or their files are damaged.
        """
        if not isinstance(name, str | Path):
            raise TypeError(
                f"pretrained must be the name of a network or a folder, got {name!r}; "
                f"here are {', '.join(shipped_folders()) or 'none'}"
            )
        folder = path_or_shipped(name)
        metadata = read_metadata(folder)
        require_own_card(folder, metadata["sha256"])
        model, arguments = metadata.get("model"), metadata.get("arguments")
        if not isinstance(model, str) or not isinstance(arguments, dict):
            raise ModelFileError(f"{folder / METADATA}: damaged: it does not say what model the weights are of")
        with opened_weights(folder / WEIGHTS, metadata["sha256"]) as (file, stored):
            tensors = {}
            for key, tensor in stored.items():
                if key.startswith(_PREFIX):
                    tensors[key.removeprefix(_PREFIX)] = target = torch.empty(tensor.shape, dtype=tensor.dtype)
                    read_tensor(file, tensor, target)
        return cls(str(name), model, arguments, tensors)

    def require_fit(self, model: str, given: Mapping[str, object]) -> None:
        """Raise a ValueError if a model or its arguments are not those of the weights.

        Args:
            model: name of the model.
            given: its arguments that were given.
        """
        if model != self.model:
            raise ValueError(
                f"the weights {self.name!r} are of {self.model}, not of {model}: "
                f"create_model({self.model!r}, pretrained={self.name!r}). {_weights_of(model)}"
            )
        for key in _MUST_EQUAL:
            if key in given and given[key] != self.arguments.get(key, given[key]):
                raise ValueError(
                    f"the weights {self.name!r} are for {key}={self.arguments[key]!r}, got {key}={given[key]!r}; "
                    "without that argument the model gets theirs"
                )

    def fill(self, model: nn.Module, given: Mapping[str, object]) -> None:
        """Copy the weights into a model.

        Args:
            model: the model.
            given: its arguments that were given, for the error message.

        Raises:
            ValueError: if its tensors have other names or shapes.
        """
        wanted = model.state_dict()
        for key in [*wanted, *self.tensors]:
            here = tuple(wanted[key].shape) if key in wanted else None
            there = tuple(self.tensors[key].shape) if key in self.tensors else None
            if here != there:
                raise ValueError(
                    f"the weights {self.name!r} do not fit: {key!r} is of shape {there} in them and {here} in the "
                    f"model{self._differing(given)}"
                )
        model.load_state_dict(self.tensors)

    def _differing(self, given: Mapping[str, object]) -> str:
        """Words on the arguments that were given and are not those of the weights."""
        words = [
            f"{key}={value!r} where the weights have {self.arguments.get(key, 'the usual value')!r}"
            for key, value in given.items()
            if _plain(value) != _plain(self.arguments.get(key))
        ]
        return f", which was built with {', '.join(words)}" if words else ""


def _plain(value: object) -> object:
    """A value by which a side and a square, a list and a tuple are the same."""
    value = tuple(value) if isinstance(value, list) else value
    return (value, value) if isinstance(value, int) and not isinstance(value, bool) else value


def _weights_of(model: str) -> str:
    """Sentence on the weights that there are of a model."""
    names = [name for name, folder in shipped_folders().items() if read_metadata(folder).get("model") == model]
    return f"Of {model} there {'is' if len(names) == 1 else 'are'} {', '.join(names) or 'none'}"
