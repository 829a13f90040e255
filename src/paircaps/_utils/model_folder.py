"""The folder of a trained network: its ``model.json``, read and checked, and its card; nothing here imports PyTorch.

What they describe is built in :mod:`paircaps.model_files`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from paircaps._utils.files import file_size
from paircaps._utils.shipped import METADATA, shadowed, why_unknown
from paircaps.errors import DataError, ModelFileError

WEIGHTS, CARD = "model.safetensors", "README.md"
FORMAT, VERSION = "paircaps-model", 1
_MOST_METADATA_BYTES = 2 << 20
"""Bytes of ``model.json``; parsed, JSON takes up to thirty times as many."""

_CHECKSUM = re.compile(r"^\| SHA-256 \| `([0-9a-f]{64})` \|\s*$", re.MULTILINE)
_MOST_NAMED = 20
_DEMO = "paircaps-demo"
"""Folder of the networks that ``paircaps demo`` trains, which many pages take for granted."""


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
        raise ModelFileError(f"{folder}: {kind}{shadowed(folder) if folder.exists() else _hint(folder)}")
    if not path.exists():
        raise ModelFileError(f"{folder}: no trained model here: {_why_no_model(folder)}{shadowed(folder)}")
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


def _hint(folder: Path) -> str:
    """What else a place that does not exist may mean: the demonstration's folder, or weights of the project."""
    if _DEMO in folder.parts:
        return f"; `paircaps demo` makes {_DEMO}"
    unknown = why_unknown(str(folder))
    return f", {unknown}" if unknown else ""


def _why_no_model(folder: Path) -> str:
    """What is in a folder without ``model.json``: a training that has not finished, or folders of trained networks."""
    if (folder / "checkpoints").is_dir():
        return "its training has not finished; `paircaps train` goes on with it"
    inside = folders_inside(folder)
    unfinished = sorted(path.parent for path in folder.glob("*/checkpoints"))
    if not inside and not unfinished:
        return f"no {METADATA} in it"
    named = [str(path) for path in inside or unfinished]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    what = "it holds trained ones, of which one can be given" if inside else "it holds trainings that have not finished"
    return f"{what}: {', '.join(named[:_MOST_NAMED])}{more}"


def folders_inside(place: Path) -> list[Path]:
    """Folders of trained networks in a folder that is none itself, in the order in which they were trained."""
    if (place / METADATA).exists() or not place.is_dir():
        return []
    files = sorted(place.glob(f"*/{METADATA}"), key=lambda file: (file.stat().st_mtime_ns, file))
    return [file.parent for file in files]


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


def checksum_line(checksum: str) -> str:
    """Line of a card that names the weights which it describes.

    Args:
        checksum: SHA-256 of the file of weights, in hexadecimal.
    """
    return f"| SHA-256 | `{checksum}` |"


def require_own_card(folder: Path, checksum: str) -> None:
    """Refuse weights beside a card that describes others; a folder without a card of paircaps has nothing to compare.

    Args:
        folder: folder of a trained network.
        checksum: SHA-256 that its ``model.json`` names.

    Raises:
        ModelFileError: if the card names another one.
    """
    card = folder / CARD
    try:
        if not card.is_file() or file_size(card) > _MOST_METADATA_BYTES:
            return
        text = card.read_text(encoding="utf-8", errors="replace")
    except (OSError, DataError):
        return
    named = _CHECKSUM.search(text)
    if named and named[1] != checksum:
        raise ModelFileError(
            f"{card}: the card is of weights with the SHA-256 {named[1]}, where {METADATA} names {checksum}: one of "
            "the files is from elsewhere"
        )
