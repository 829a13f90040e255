"""Saving and loading trained networks: ``model.safetensors`` has the weights, ``model.json`` everything else.

Neither file can contain code: a damaged or foreign file is refused, never run. That is why ``torch.save`` is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from paircaps._utils.files import write_whole
from paircaps._utils.plugins import is_imported, used_plugins
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

WEIGHTS, METADATA = "model.safetensors", "model.json"
FORMAT, VERSION = "paircaps-model", 1
_MOST_METADATA_BYTES = 16 << 20
_MOST_NAMED = 20
_DEMO = "paircaps-demo"
"""Folder of the networks that ``paircaps demo`` trains, which many pages take for granted."""


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
    content = _read(folder / WEIGHTS)
    if hashlib.sha256(content).hexdigest() != metadata["sha256"]:
        raise ModelFileError(f"{folder / WEIGHTS}: damaged: its checksum is not the one in {METADATA}")
    network = _build(metadata, folder / METADATA)
    try:
        network.load_state_dict(tensors_from_bytes(content))
    except (SafetensorError, RuntimeError) as error:
        raise ModelFileError(f"{folder / WEIGHTS}: not the weights of this model: {_first_line(error)}") from None
    return network.to(device).eval()


def load_without_weights(folder: Path) -> Network:
    """Load a network without its weights: layers and shapes on the device ``meta``, to look at or to count.

    Args:
        folder: folder with ``model.json``.

    Raises:
        ModelFileError: as :func:`load`.
    """
    with torch.device("meta"):
        return _build(read_metadata(folder), folder / METADATA)


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
    if path.stat().st_size > _MOST_METADATA_BYTES:
        raise ModelFileError(f"{path}: {path.stat().st_size:,} bytes are too many, {_MOST_METADATA_BYTES:,} at most")
    try:
        metadata = json.loads(_read(path))
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


def _build(metadata: dict[str, Any], path: Path) -> Network:
    try:
        arguments = dict(metadata["arguments"])
        spec = NetworkSpec(
            metadata["model"],
            arguments,
            tuple(str(name) for name in metadata["classes"]),
            _preparation(metadata["preparation"], arguments),
            metadata["decoder"],
            metadata["labels_per_image"],
            metadata.get("certainty") or _certainty_of_loss(metadata),
        )
        return Network(spec)
    except KeyError as error:
        raise ModelFileError(f"{path}: damaged: {error.args[0]!r} is missing") from None
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        needed = plugin_sentence(path.parent)
        raise ModelFileError(f"{path}: no model that this paircaps can build: {_first_line(error)}{needed}") from None


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


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot read: {error.strerror or error}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
