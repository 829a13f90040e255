"""Checkpoints: a folder each, whole or not there at all.

A checkpoint is written to a temporary folder, fsynced, renamed, and the folder above it fsynced. It holds tensors as
safetensors, numbers as JSON, and ``SHA256SUMS`` over both, which ``sha256sum -c`` understands too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from paircaps._utils.files import sync_folder, write_synced
from paircaps.errors import CheckpointError

TENSORS, FACTS, SUMS = "state.safetensors", "state.json", "SHA256SUMS"
_NAME = re.compile(r"step-(\d{8,})")
_LEFTOVER = re.compile(r"\.(partial|old)-.*")


@dataclass(frozen=True)
class Checkpoint:
    """A state as it was saved: the bytes of both files, which are the same for every process."""

    tensors_file: bytes
    facts_file: bytes

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return tensors_from_bytes(self.tensors_file)

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that is no tensor."""
        return json.loads(self.facts_file)


def pack(tensors: Mapping[str, Tensor], facts: Mapping[str, object]) -> Checkpoint:
    """A state as the bytes of its two files."""
    return Checkpoint(tensors_to_bytes(dict(tensors)), (json.dumps(facts, indent=1) + "\n").encode())


def write(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint; at every instant there is either no trace of it that counts, or all of it.

    Raises:
        CheckpointError: if the disk is full, or does not let us.
    """
    final = path_of(folder, step)
    partial = folder / f".partial-{final.name}-{secrets.token_hex(4)}"
    try:
        if not folder.exists():
            folder.mkdir()
            sync_folder(folder.parent)
        write_state(partial, checkpoint)
        if final.exists():  # a damaged one, or the same
            final.rename(folder / f".old-{final.name}-{secrets.token_hex(4)}")
        partial.rename(final)
        sync_folder(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(
            f"{final}: cannot write the checkpoint: {error.strerror or error}. Earlier checkpoints are as they were"
        ) from error
    remove_leftovers(folder)
    return final


def write_state(folder: Path, checkpoint: Checkpoint) -> None:
    """The three files of a checkpoint into a new folder."""
    folder.mkdir()
    contents = {TENSORS: checkpoint.tensors_file, FACTS: checkpoint.facts_file}
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in contents.items())
    for name, content in {**contents, SUMS: sums.encode()}.items():
        write_synced(folder / name, content)
    sync_folder(folder)


def read(path: Path) -> Checkpoint:
    """A checkpoint, if it is whole.

    Raises:
        CheckpointError: that says what is wrong with it.
    """
    try:
        sums = (path / SUMS).read_text(encoding="ascii")
        contents = {name: (path / name).read_bytes() for name in (TENSORS, FACTS)}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        name = Path(error.filename).name if isinstance(error, OSError) and error.filename else SUMS
        raise CheckpointError(f"{path}: damaged: {name}: {reason}") from None
    known = {name: digest for digest, _, name in (line.partition("  ") for line in sums.splitlines())}
    for name, content in contents.items():
        if known.get(name) != hashlib.sha256(content).hexdigest():
            raise CheckpointError(f"{path}: damaged: the checksum of {name} is wrong")
    checkpoint = Checkpoint(contents[TENSORS], contents[FACTS])
    try:
        _ = checkpoint.tensors, checkpoint.facts  # that they can be read
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path}: damaged: {error}") from None
    return checkpoint


def steps(folder: Path) -> list[int]:
    """Steps of which there is a checkpoint, damaged or not, the newest first."""
    if not folder.is_dir():
        return []
    found = [int(match[1]) for entry in folder.iterdir() if (match := _NAME.fullmatch(entry.name))]
    return sorted(found, reverse=True)


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return folder / f"step-{step:08d}"


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint, and what is wrong with those that are newer.

    Raises:
        CheckpointError: if there are checkpoints but none is whole: to start over is for a person to decide.
    """
    complaints: list[str] = []
    for step in steps(folder):
        try:
            return read(path_of(folder, step)), complaints
        except CheckpointError as error:
            complaints.append(str(error))
    if complaints:
        raise CheckpointError(
            "no checkpoint can be read; --fresh, or another folder, starts over:\n  " + "\n  ".join(complaints)
        )
    return None, []


def prune(folder: Path, keep: Collection[int]) -> None:
    """Remove all checkpoints but those of some steps: each is renamed first, so that none is ever seen half removed."""
    for step in steps(folder):
        if step not in keep:
            path = path_of(folder, step)
            path.rename(folder / f".old-{path.name}-{secrets.token_hex(4)}")
    remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """What a killed process left behind, and what was put aside."""
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        if _LEFTOVER.fullmatch(entry.name):
            shutil.rmtree(entry.path, ignore_errors=True)
