"""Saving and loading trained networks: ``model.safetensors`` has the weights, ``model.json`` everything else.

Neither file can contain code: a damaged or foreign file is refused, never run. That is why ``torch.save`` is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from paircaps._utils.bounded_build import TooLargeError, bounded_build, shapes_only
from paircaps._utils.files import file_size, write_whole
from paircaps._utils.plugins import is_imported, used_plugins
from paircaps._utils.tensor_files import StoredTensor, read_header, read_tensor
from paircaps.errors import DataError, ModelFileError
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.pictures import Fitting

__all__ = [
    "find_models",
    "load",
    "load_without_weights",
    "read_metadata",
    "save_model",
]

WEIGHTS, METADATA = "model.safetensors", "model.json"
FORMAT, VERSION = "paircaps-model", 1
_MOST_METADATA_BYTES = 2 << 20
"""Bytes of ``model.json``; parsed, JSON takes up to thirty times as many."""

_MOST_NAMED = 20
_DEMO = "paircaps-demo"
"""Folder of the networks that ``paircaps demo`` trains, which many pages take for granted."""

_MOST_PARTS = 20_000
"""Layers and tensors of a network whose weights are not looked at."""

_BESIDE_FILE = 32 << 20
"""Bytes that a network may have beside the tensors of its file, such as buffers that are not saved."""


def save_model(folder: Path, network: Network, trained: Mapping[str, object]) -> None:
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
    """
    weights = tensors_to_bytes(contiguous(network.state_dict()))
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        **network.spec.as_dict(),
        "sha256": hashlib.sha256(weights).hexdigest(),
        "trained": dict(trained),
    }
    if used_plugins():
        metadata["plugins"] = used_plugins()
    write_whole(folder / WEIGHTS, weights)
    write_whole(folder / METADATA, (json.dumps(metadata, indent=2) + "\n").encode())


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
        inside = _folders_inside(place)
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


def _folders_inside(place: Path) -> list[Path]:
    """Folders of trained networks in a folder that is none itself, in the order in which they were trained."""
    if (place / METADATA).exists() or not place.is_dir():
        return []
    files = sorted(place.glob(f"*/{METADATA}"), key=lambda file: (file.stat().st_mtime_ns, file))
    return [file.parent for file in files]


def load(folder: Path | str, device: torch.device | str = "cpu") -> Network:
    """Load a trained network, ready to predict: in eval mode, with its preparation, classes and decoder.

    Args:
        folder: the ``--out`` of a training, or any folder with ``model.safetensors`` and ``model.json``.
        device: device to load it on.

    Returns:
        the network; its method :meth:`paircaps.network.Network.predict` classifies pictures.

    Raises:
        ModelFileError: if the files are missing or damaged, or not those of a paircaps model.
    """
    folder = Path(folder).expanduser()
    metadata = read_metadata(folder)
    spec = _spec(metadata, folder / METADATA)
    with _opened_weights(folder / WEIGHTS, metadata["sha256"]) as (file, stored):
        network = _build_to_fit(spec, stored, folder)
        _fill(network, file, stored)
    return (network if torch.device(device).type == "cpu" else network.to(device)).eval()


@contextmanager
def _opened_weights(path: Path, checksum: str) -> Iterator[tuple[BinaryIO, dict[str, StoredTensor]]]:
    """The file of weights, whose checksum was verified, and its header; errors of reading it name it."""
    try:
        size = file_size(path)
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != checksum:
                raise ModelFileError(f"{path}: damaged: its checksum is not the one in {METADATA}")
            yield file, read_header(file, size)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot read: {error.strerror or error}") from None
    except DataError as error:
        raise ModelFileError(str(error)) from None
    except (ValueError, RuntimeError) as error:
        raise ModelFileError(f"{path}: not the weights of this model: {_first_line(error)}") from None


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


def read_metadata(folder: Path) -> dict[str, Any]:
    """Read ``model.json`` of a trained network.

    Args:
        folder: folder of a trained network.

    Returns:
        content of the file, whose format and version were checked; its section ``trained`` says what is known of the
        training.

    Raises:
        ModelFileError: if it is missing or damaged, or not that of a paircaps model.
    """
    path = folder / METADATA
    if not folder.is_dir():
        kind = "is a file; a model is loaded by its folder" if folder.exists() else "no such folder"
        hint = f"; `paircaps demo` makes {_DEMO}" if _DEMO in folder.parts and not folder.exists() else ""
        raise ModelFileError(f"{folder}: {kind}{hint}")
    if not path.exists():
        raise ModelFileError(f"{folder}: no trained model here: {_why_no_model(folder)}")
    try:
        metadata = json.loads(_read_metadata_file(path))
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path}: not JSON, so no model of paircaps") from None
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ModelFileError(f"{path}: no model of paircaps: it has no format {FORMAT!r}")
    if metadata.get("version") != VERSION:
        raise ModelFileError(
            f"{path}: version {metadata.get('version')!r} of the format, this paircaps reads {VERSION}"
        )
    if not isinstance(metadata.get("sha256"), str):
        raise ModelFileError(f"{path}: damaged: no checksum of the weights")
    return metadata


def _why_no_model(folder: Path) -> str:
    """What is in a folder without ``model.json``: a training that has not finished, or folders of trained networks."""
    if (folder / "checkpoints").is_dir():
        return "its training has not finished; `paircaps train` goes on with it"
    inside = _folders_inside(folder)
    unfinished = sorted(path.parent for path in folder.glob("*/checkpoints"))
    if not inside and not unfinished:
        return f"no {METADATA} in it"
    named = [str(path) for path in inside or unfinished]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    what = "it holds trained ones, of which one can be given" if inside else "it holds trainings that have not finished"
    return f"{what}: {', '.join(named[:_MOST_NAMED])}{more}"


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
    return ModelFileError(f"{path}: no model that this paircaps can build: {_first_line(error)}{needed}")


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


def _read_metadata_file(path: Path) -> bytes:
    try:
        size = file_size(path)
        if size > _MOST_METADATA_BYTES:
            raise ModelFileError(f"{path}: {size:,} bytes are too many, {_MOST_METADATA_BYTES:,} at most")
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot read: {error.strerror or error}") from None
    except DataError as error:
        raise ModelFileError(str(error)) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
