"""A trained network as two files: ``model.safetensors`` with its weights, ``model.json`` with everything else.

Neither can hold code: a damaged or foreign file is refused, never run.
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
from paircaps._utils.plugins import used_plugins
from paircaps.errors import ModelFileError
from paircaps.network import Network, NetworkSpec, Preparation

WEIGHTS, FACTS = "model.safetensors", "model.json"
FORMAT, VERSION = "paircaps-model", 1
_MOST_FACTS = 16 << 20


def save_model(folder: Path, network: Network, trained: Mapping[str, object]) -> None:
    """Write a network; the JSON comes last, so that a reader finds both or an error.

    Args:
        folder: that exists.
        network: whose weights and spec are saved.
        trained: how it came about, for people: dataset, steps, accuracy.
    """
    weights = tensors_to_bytes(contiguous(network.state_dict()))
    facts = {
        "format": FORMAT,
        "version": VERSION,
        **network.spec.as_dict(),
        "sha256": hashlib.sha256(weights).hexdigest(),
        "trained": dict(trained),
    }
    if used_plugins():
        facts["plugins"] = used_plugins()
    write_whole(folder / WEIGHTS, weights)
    write_whole(folder / FACTS, (json.dumps(facts, indent=2) + "\n").encode())


def contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that share no memory and lie row by row, as the file format wants them."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def find_models(places: Iterable[Path]) -> dict[str, Path]:
    """Folders of trained networks by name: each place is one, or holds some, as that of ``paircaps demo`` does.

    Those of one place come in the order in which they were trained.

    Raises:
        ModelFileError: if a place is or has none.
    """
    found: dict[str, Path] = {}
    for place in places:
        place = place.expanduser()
        inside = [] if (place / FACTS).exists() or not place.is_dir() else list(place.glob(f"*/{FACTS}"))
        inside = [facts.parent for facts in sorted(inside, key=lambda facts: (facts.stat().st_mtime_ns, facts))]
        if not inside:
            read_facts(place)  # says what is wrong, if anything is
        for folder in inside or [place]:
            name = folder.resolve().name
            if name in found and found[name].resolve() != folder.resolve():
                name = f"{folder.resolve().parent.name}/{name}"
            if name in found and found[name].resolve() != folder.resolve():
                raise ModelFileError(f"{folder}: another network of that name was given already, {found[name]}")
            found[name] = folder
    return found


def load(folder: Path | str, device: torch.device | str = "cpu") -> Network:
    """A trained network, ready to predict: in eval mode, with its normalisation, classes and decoder.

    Args:
        folder: the ``--out`` of a training, or any folder with its ``model.safetensors`` and ``model.json``.
        device: where to put it.

    Raises:
        ModelFileError: if there is none, or it is damaged, or it is no model of paircaps.
    """
    folder = Path(folder).expanduser()
    facts = read_facts(folder)
    content = _read(folder / WEIGHTS)
    if hashlib.sha256(content).hexdigest() != facts["sha256"]:
        raise ModelFileError(f"{folder / WEIGHTS}: damaged: its checksum is not the one in {FACTS}")
    network = _build(facts, folder / FACTS)
    try:
        network.load_state_dict(tensors_from_bytes(content))
    except (SafetensorError, RuntimeError) as error:
        raise ModelFileError(f"{folder / WEIGHTS}: not the weights of this model: {_first_line(error)}") from None
    return network.to(device).eval()


def read_facts(folder: Path) -> dict[str, Any]:
    """``model.json`` of a folder, checked as far as its own fields go."""
    path = folder / FACTS
    if not folder.is_dir():
        kind = "is a file; a model is loaded by its folder" if folder.exists() else "no such folder"
        raise ModelFileError(f"{folder}: {kind}")
    if not path.exists():
        unfinished = (folder / "checkpoints").is_dir()
        why = "its training has not finished; `paircaps train` goes on with it" if unfinished else f"no {FACTS} in it"
        raise ModelFileError(f"{folder}: no trained model here: {why}")
    if path.stat().st_size > _MOST_FACTS:
        raise ModelFileError(f"{path}: {path.stat().st_size:,} bytes are too many, {_MOST_FACTS:,} at most")
    try:
        facts = json.loads(_read(path))
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path}: not JSON, so no model of paircaps") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ModelFileError(f"{path}: no model of paircaps: it has no format {FORMAT!r}")
    if facts.get("version") != VERSION:
        raise ModelFileError(f"{path}: version {facts.get('version')!r} of the format, this paircaps reads {VERSION}")
    if not isinstance(facts.get("sha256"), str):
        raise ModelFileError(f"{path}: damaged: no checksum of the weights")
    return facts


def _build(facts: dict[str, Any], path: Path) -> Network:
    try:
        preparation = facts["preparation"]
        spec = NetworkSpec(
            facts["model"],
            dict(facts["arguments"]),
            tuple(str(name) for name in facts["classes"]),
            Preparation(tuple(preparation["size"]), tuple(preparation["crop"]), preparation["standardise"]),
            facts["decoder"],
            facts["labels_per_image"],
        )
        return Network(spec)
    except KeyError as error:
        raise ModelFileError(f"{path}: damaged: {error.args[0]!r} is missing") from None
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        needed = _missing_plugins(facts)
        raise ModelFileError(f"{path}: no model that this paircaps can build: {_first_line(error)}{needed}") from None


def _missing_plugins(facts: dict[str, Any]) -> str:
    """Plug-ins that the training used and this process does not, as a sentence; nothing is imported for it."""
    recorded = facts.get("plugins")
    names = [str(name)[:200] for name in recorded[:20]] if isinstance(recorded, list) else []
    missing = [name for name in names if name not in used_plugins()]
    if not missing:
        return ""
    return (
        f". It was trained with {'plug-ins' if len(missing) > 1 else 'the plug-in'} {', '.join(missing)}: "
        "install it, name it with --plugin, or import it first"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot read: {error.strerror or error}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
