"""Saving and loading trained networks: ``model.safetensors`` has the weights, ``model.json`` everything else.

Neither file can contain code: a damaged or foreign file is refused, never run. That is why ``torch.save`` is not used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from paircaps._utils.bounded_build import TooLargeError, bounded_build, shapes_only
from paircaps._utils.files import write_whole
from paircaps._utils.model_folder import FORMAT, VERSION, WEIGHTS, folders_inside, read_metadata, require_own_card
from paircaps._utils.plugins import is_imported, used_plugins
from paircaps._utils.shipped import METADATA, path_or_shipped
from paircaps._utils.tensor_files import StoredTensor, opened_weights, read_tensor
from paircaps._utils.words import first_line
from paircaps.errors import ModelFileError
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.pictures import Fitting

__all__ = [
    "find_models",
    "load",
    "load_without_weights",
    "read_metadata",
    "save_model",
]

Precision = Literal["fp32", "bf16"]
"""How weights are stored: all in float32, or matrices and filters in bfloat16."""

_MOST_PARTS = 20_000
"""Layers and tensors of a network whose weights are not looked at."""

_BESIDE_FILE = 32 << 20
"""Bytes that a network may have beside the tensors of its file, such as buffers that are not saved."""


def save_model(
    folder: Path,
    network: Network,
    trained: Mapping[str, object],
    *,
    more: Mapping[str, object] | None = None,
    precision: Precision = "fp32",
) -> None:
    """Write a network to a folder, where :func:`load` finds it.

    The files are ``model.safetensors`` and ``model.json``. The JSON is written last, so that a reader finds both files
    or an error.

    >>> from tempfile import TemporaryDirectory
    >>> preparation = Preparation(size=(28, 28), crop=(28, 28))
    >>> options = {"num_classes": 2}
    >>> spec = NetworkSpec("resnet-caps-small", options, ("cat", "dog"), preparation)
    >>> network = Network(spec)
    >>> with TemporaryDirectory() as folder:
    ...     save_model(Path(folder), network, {"dataset": "pets"})
    ...     load(folder).classes
    ('cat', 'dog')

    Args:
        folder: where to write; it must exist.
        network: network to save, with its specification.
        trained: facts about the training, for people: dataset, steps, accuracy.
        more: further sections of ``model.json`` by name.
        precision: ``"bf16"`` stores matrices and filters in half the bytes, as bfloat16; :func:`load` gives float32.
    """
    weights = weights_as_bytes(network, precision)
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        **network.spec.as_dict(),
        "sha256": hashlib.sha256(weights).hexdigest(),
        "trained": dict(trained),
        **(more or {}),
    }
    if used_plugins():
        metadata["plugins"] = used_plugins()
    write_whole(folder / WEIGHTS, weights)
    write_metadata(folder, metadata)


def write_metadata(folder: Path, metadata: Mapping[str, object]) -> None:
    """Write ``model.json``, with a list of numbers on one line."""
    text = json.dumps(metadata, indent=2)
    text = re.sub(r"\[\n\s+([^\[\]{}]*?)\n\s+\]", lambda found: f"[{re.sub(chr(10) + ' +', ' ', found[1])}]", text)
    write_whole(folder / METADATA, f"{text}\n".encode())


def weights_as_bytes(network: Network, precision: Precision = "fp32") -> bytes:
    """Content of the file of a network's weights.

    Args:
        network: the network.
        precision: as for :func:`save_model`. Vectors, such as the statistics of batch norm, stay as they are.
    """
    tensors = contiguous(network.state_dict())
    if precision == "bf16":
        halved = {name: value.dim() > 1 and value.is_floating_point() for name, value in tensors.items()}
        tensors = {name: value.bfloat16() if halved[name] else value for name, value in tensors.items()}
    return tensors_to_bytes(tensors)


def contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU that share no memory and are contiguous, as safetensors requires."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def find_models(places: Iterable[Path]) -> dict[str, Path]:
    """Find trained networks.

    Args:
        places: folders of trained networks, or folders that contain some, as ``paircaps demo`` writes. Those of one
            place come in the order in which they were trained.

    Returns:
        their folders by name.

    Raises:
        ModelFileError: if a place is no trained network and contains none, or two have one name.
    """
    found: dict[str, Path] = {}
    for place in places:
        place = place.expanduser()
        inside = folders_inside(place)
        if not inside:
            read_metadata(place)  # raises if the place is no trained network
        for folder in inside or [place]:
            name = folder.resolve().name
            if name in found and found[name].resolve() != folder.resolve():
                name = f"{folder.resolve().parent.name}/{name}"
            if name in found and found[name].resolve() != folder.resolve():
                raise ModelFileError(f"{folder}: another network of that name was given already, {found[name]}")
            found[name] = folder
    return found


def load(folder: Path | str, device: torch.device | str = "cpu") -> Network:
    """Load a trained network, ready to predict: in eval mode, with its preparation, classes and decoder.

    >>> network = load("glyphs")  # one of those that come with paircaps
    >>> network.classes[:3]
    ('0', '1', '2')

    Args:
        folder: the ``--out`` of a training, or any folder with ``model.safetensors`` and ``model.json``; or, where no
            such path exists, the name of a network that comes with the project (``paircaps weights`` lists them).
        device: device to load it on.

    Returns:
        the network; its method :meth:`paircaps.network.Network.predict` classifies pictures.

    Raises:
        ModelFileError: if the files are missing or damaged, or not those of a paircaps model.
    """
    folder = path_or_shipped(folder)
    metadata = read_metadata(folder)
    require_own_card(folder, metadata["sha256"])
    spec = _spec(metadata, folder / METADATA)
    with opened_weights(folder / WEIGHTS, metadata["sha256"]) as (file, stored):
        network = _build_to_fit(spec, stored, folder)
        _fill(network, file, stored)
    network.origin = metadata
    return (network if torch.device(device).type == "cpu" else network.to(device)).eval()


def _build_to_fit(spec: NetworkSpec, stored: Mapping[str, StoredTensor], folder: Path) -> Network:
    """Build the network that a file's tensors belong to; nothing is allocated before names and shapes are compared.

    Networks of this package and of PyTorch's layers are built once, as shapes, and then given memory. Those with layers
    of a plug-in, whose constructors may compute values that are not saved, are built a second time in earnest.
    """
    most_parts = 1000 + 16 * len(stored)  # a constructor may build layers that it does not keep
    most_bytes = _BESIDE_FILE + sum(tensor.values * max(4, tensor.dtype.itemsize) for tensor in stored.values())
    shapes = None
    try:
        with bounded_build(most_parts, most_bytes), shapes_only():
            shapes = Network(spec)
    except TooLargeError as error:
        raise _too_large(folder, error) from None
    except ValueError as error:  # of a check, which would refuse it again, after it had taken memory
        raise _cannot_build(folder / METADATA, error) from None
    except Exception:  # a plug-in's constructor may need values, which shapes have not; other errors come again
        pass
    if shapes is not None:
        _require_same_tensors(shapes, stored)
        if _is_described_by_state(shapes):
            # as to_empty, whose first call takes half a second of imports
            return shapes._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))
    try:
        with bounded_build(most_parts, most_bytes):
            network = _network(spec, folder / METADATA)
    except TooLargeError as error:
        raise _too_large(folder, error) from None
    _require_same_tensors(network, stored)
    return network


def _too_large(folder: Path, error: TooLargeError) -> ModelFileError:
    return ModelFileError(
        f"{folder / METADATA}: describes a larger network than {WEIGHTS} has the weights of: it has {error}"
    )


def _require_same_tensors(network: Network, stored: Mapping[str, StoredTensor]) -> None:
    """Raise a ValueError unless a file has all tensors of a network and no others, of the same shapes and kinds."""
    if _has_own_loading(network):
        return  # PyTorch calls it, and compares the rest
    wanted = network.state_dict(keep_vars=True)
    for name in [*wanted, *stored]:
        if name not in stored:
            raise ValueError(f"it has no {name!r}")
        if name not in wanted:
            raise ValueError(f"it has {name!r}, which the model has not")
        here, there = wanted[name], stored[name]
        if tuple(here.shape) != there.shape:
            raise ValueError(f"{name!r} is of shape {there.shape}, in the model of {tuple(here.shape)}")
        if here.dtype != there.dtype and not (here.is_floating_point() and there.dtype.is_floating_point):
            raise ValueError(f"{name!r} is {there.dtype}, in the model {here.dtype}")


def _is_described_by_state(network: Network) -> bool:
    """Whether a network has nothing but its layers and the tensors of its state: all of this package and of PyTorch."""
    ours = all(type(part).__module__.split(".")[0] in ("paircaps", "torch") for part in network.modules())
    return ours and not any(part._non_persistent_buffers_set for part in network.modules())


def _has_own_loading(network: Network) -> bool:
    """Whether a layer, of a plug-in, has a way of its own to load its state or to give it: renamed or other tensors."""
    return any(
        part._load_state_dict_pre_hooks
        or part._state_dict_hooks
        or type(part).set_extra_state is not nn.Module.set_extra_state
        or not type(part)._load_from_state_dict.__module__.startswith("torch.")
        for part in network.modules()
    )


def _fill(network: Network, file: BinaryIO, stored: Mapping[str, StoredTensor]) -> None:
    """Read the weights of a network, each to its place."""
    own = _has_own_loading(network)
    empty = {name: torch.empty(tensor.shape, dtype=tensor.dtype) for name, tensor in stored.items()} if own else {}
    tensors = empty if own else network.state_dict()
    for name, tensor in tensors.items():
        read_tensor(file, stored[name], tensor)
    if own:
        network.load_state_dict(tensors)


def load_without_weights(folder: Path) -> Network:
    """Load a network without its weights: layers and shapes on the device ``meta``, to look at or to count.

    Args:
        folder: folder with ``model.json``.

    Raises:
        ModelFileError: as :func:`load`.
    """
    path = folder / METADATA
    spec = _spec(read_metadata(folder), path)
    try:
        with bounded_build(_MOST_PARTS, _BESIDE_FILE), shapes_only():
            return _network(spec, path)
    except TooLargeError as error:
        raise ModelFileError(f"{path}: describes too large a network: it has {error}") from None


def _spec(metadata: dict[str, Any], path: Path) -> NetworkSpec:
    """Specification of the network that a ``model.json`` describes."""
    try:
        arguments = dict(metadata["arguments"])
        return NetworkSpec(
            metadata["model"],
            arguments,
            tuple(str(name) for name in metadata["classes"]),
            _preparation(metadata["preparation"], arguments),
            metadata["decoder"],
            metadata["labels_per_image"],
            metadata.get("certainty") or _certainty_of_loss(metadata),
        )
    except KeyError as error:
        raise ModelFileError(f"{path}: damaged: {error.args[0]!r} is missing") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise _cannot_build(path, error) from None


def _network(spec: NetworkSpec, path: Path) -> Network:
    """The network of a specification, with fresh weights; any error of a constructor becomes a ModelFileError."""
    try:
        return Network(spec)
    except TooLargeError:
        raise
    except Exception as error:  # constructors, those of plug-ins too, were not made for values of foreign files
        raise _cannot_build(path, error) from None


def _cannot_build(path: Path, error: Exception) -> ModelFileError:
    needed = plugin_sentence(path.parent)
    return ModelFileError(f"{path}: no model that this paircaps can build: {first_line(error)}{needed}")


def _preparation(saved: Mapping[str, Any], arguments: Mapping[str, Any]) -> Preparation:
    """Preparation of a file; earlier versions saved neither channels nor how pictures are fitted."""
    fitting = saved.get("fitting")
    return Preparation(
        tuple(saved["size"]),
        tuple(saved["crop"]),
        saved["standardise"],
        saved.get("channels", arguments.get("in_channels", 1)),
        None if fitting is None else Fitting(fitting["fit"], fitting["background"], fitting["invert"]),
    )


def _certainty_of_loss(metadata: Mapping[str, Any]) -> str | None:
    """How activations become certainties in a file of an earlier version: by the loss that it names."""
    trained = metadata.get("trained")
    loss = trained.get("loss") if isinstance(trained, Mapping) else None
    return "activation" if isinstance(loss, Mapping) and loss.get("name") == "margin" else None


def missing_plugins(folder: Path) -> list[str]:
    """Plug-ins that the training in a folder used and this process has not imported; nothing is imported for it.

    Args:
        folder: folder of a trained network; if it is damaged or none, there are none.
    """
    try:
        recorded = read_metadata(folder).get("plugins")
    except ModelFileError:
        return []
    names = [str(name)[:200] for name in recorded[:20]] if isinstance(recorded, list) else []
    return [name for name in names if not is_imported(name)]


def plugin_sentence(folder: Path) -> str:
    """What :func:`missing_plugins` finds, as the end of an error message; empty if nothing is missing."""
    missing = missing_plugins(folder)
    if not missing:
        return ""
    return (
        f". It was trained with {'the plug-ins' if len(missing) > 1 else 'the plug-in'} {', '.join(missing)}: "
        "install it, name it with --plugin or in the variable PAIRCAPS_PLUGINS, or import it first"
    )
