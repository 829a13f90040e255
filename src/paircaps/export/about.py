"""What an exported file says of its network: classes, preparation of pictures, and where it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from safetensors.torch import save as tensors_to_bytes

import paircaps
from paircaps.model_files import contiguous
from paircaps.network import Network

FORMAT, VERSION = "paircaps-export", 1


def about(network: Network, source: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Metadata of an exported network, of types that JSON has.

    Args:
        network: the network.
        source: content of the ``model.json`` that it was loaded from; None if there is none.
    """
    spec, source = network.spec, {} if source is None else source
    trained = source.get("trained")
    trained_on = trained.get("dataset", "") if isinstance(trained, Mapping) else ""
    return {
        "format": FORMAT,
        "version": VERSION,
        "paircaps": paircaps.__version__,
        "model": spec.model,
        "routing": spec.routing,
        "classes": list(spec.classes),
        "preparation": asdict(spec.preparation),
        "labels_per_image": spec.labels_per_image,
        "certainty": network.certainty_kind,
        "decoder": network.decoder is not None,
        "trained_on": trained_on,
        "sha256": source.get("sha256") or _checksum(network),
    }


def _checksum(network: Network) -> str:
    """SHA-256 of the weights as :func:`paircaps.save_model` writes them."""
    return hashlib.sha256(tensors_to_bytes(contiguous(network.state_dict()))).hexdigest()
