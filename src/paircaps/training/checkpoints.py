"""Checkpoints of a run: complete states in folders of their own, and the manager that saves and restores them.

A checkpoint is written to a temporary folder, fsynced, renamed, and the folder above it fsynced: it is complete or
not there at all. It holds the tensors as safetensors, the numbers as JSON, and ``SHA256SUMS`` over both, which
``sha256sum -c`` checks too.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from paircaps._utils.files import sync_folder, write_synced
from paircaps.errors import CheckpointError, TrainingError
from paircaps.layers import CapsuleLayer, ConvCapsuleLayer
from paircaps.training.distributed import Processes
from paircaps.training.logging import MetricsFile
from paircaps.training.recipe import Run
from paircaps.training.run_folder import (
    RunFolder,
    checkpoint_path,
    checkpoint_steps,
    put_aside,
    remove_checkpoints,
    remove_leftovers,
)
from paircaps.training.state import Counters, State, evaluated_part
from paircaps.votes.kernels.choice import path_on

TENSORS, FACTS, SUMS = "state.safetensors", "state.json", "SHA256SUMS"
_MOST_THREADS = 4096


@dataclass(frozen=True)
class Checkpoint:
    """Saved state of a training, as the bytes of its two files.

    Args:
        tensors_file: content of ``state.safetensors``.
        facts_file: content of ``state.json``.
    """

    tensors_file: bytes
    facts_file: bytes

    @classmethod
    def pack(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, object]) -> Checkpoint:
        """A checkpoint of tensors by name and of JSON values by name."""
        return cls(tensors_to_bytes(dict(tensors)), (json.dumps(facts, indent=1) + "\n").encode())

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return tensors_from_bytes(self.tensors_file)

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that is not a tensor, by name."""
        return json.loads(self.facts_file)


# --- reading and writing ---------------------------------------------------------------------------------------------


def write_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Write the checkpoint of a step; a process killed meanwhile leaves a complete checkpoint or none.

    Args:
        folder: where the checkpoints of the run are.
        step: step of the checkpoint.
        checkpoint: what to write.

    Returns:
        The folder of the checkpoint.

    Raises:
        CheckpointError: if the disk is full or not writable.
    """
    final = checkpoint_path(folder, step)
    partial = folder / f".partial-{final.name}-{secrets.token_hex(4)}"
    try:
        if not folder.exists():
            folder.mkdir()
            sync_folder(folder.parent)
        write_files(partial, checkpoint)
        if final.exists():  # a damaged checkpoint of this step, or the same one
            put_aside(final)
        partial.rename(final)
        sync_folder(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(
            f"{final}: cannot write the checkpoint: {error.strerror or error}. Earlier checkpoints are as they were"
        ) from error
    remove_leftovers(folder)
    return final


def write_files(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the three files of a checkpoint into a new folder and wait until they are on the disk."""
    folder.mkdir()
    contents = {TENSORS: checkpoint.tensors_file, FACTS: checkpoint.facts_file}
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in contents.items())
    for name, content in {**contents, SUMS: sums.encode()}.items():
        write_synced(folder / name, content)
    sync_folder(folder)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and verify its checksums.

    Args:
        path: folder of the checkpoint.

    Raises:
        CheckpointError: if a file is missing, damaged or unreadable.
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
        _ = checkpoint.tensors  # parse both now, so that an error shows here
        _require_facts(checkpoint.facts)
    except (SafetensorError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged: {error}") from None
    return checkpoint


def _require_facts(facts: object) -> None:
    """Raise a ValueError unless ``state.json`` has all that a training writes to it, each of its type and range."""
    if not isinstance(facts, dict):
        raise ValueError(f"{FACTS}: no table")
    for name, kind in {"counters": dict, "data": dict, "threads": int, "torch": str}.items():
        if name not in facts:
            raise ValueError(f"{FACTS}: {name!r} is missing")
        if type(facts[name]) is not kind:
            raise ValueError(f"{FACTS}: {name} is {facts[name]!r:.100}")
    for name in ("kernel", "loss"):  # earlier versions wrote neither
        if not isinstance(facts.get(name, ""), str):
            raise ValueError(f"{FACTS}: {name} is {facts[name]!r:.100}")
    if not 1 <= facts["threads"] <= _MOST_THREADS:
        raise ValueError(f"{FACTS}: threads must be from 1 to {_MOST_THREADS:,}, got {facts['threads']!r:.100}")
    try:
        Counters.from_dict(facts["counters"])
    except ValueError as error:
        raise ValueError(f"{FACTS}: {error}") from None


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest undamaged checkpoint, and the errors of newer ones that were skipped.

    Args:
        folder: where the checkpoints of the run are.

    Returns:
        The checkpoint, None if there are none at all; one message for each damaged checkpoint that is newer.

    Raises:
        CheckpointError: if there are checkpoints but all are damaged: only the user may decide to start over.
    """
    complaints: list[str] = []
    for step in checkpoint_steps(folder):
        path = checkpoint_path(folder, step)
        try:
            checkpoint = read_checkpoint(path)
            said = checkpoint.facts["counters"]["step"]
            if said != step:
                raise CheckpointError(f"{path}: damaged: {FACTS}: it is of step {said:,}")
            return checkpoint, complaints
        except CheckpointError as error:
            complaints.append(str(error))
    if complaints:
        raise CheckpointError(
            "no checkpoint can be read; --fresh, or another folder, starts over:",
            *(f"  {complaint}" for complaint in complaints),
        )
    return None, []


# --- the manager -----------------------------------------------------------------------------------------------------


class CheckpointManager:
    """Saves the state of a run, removes old checkpoints, and restores the newest undamaged one.

    Args:
        folder: where the run is.
        state: state of the training, which is saved and restored.
        data_facts: description of the images; it must be the same when a run is resumed.
        processes: all processes of the training; rank 0 reads and writes, and shares what it reads.
        settings: section ``run`` of the recipe, for the number of newest checkpoints to keep and of threads.
        loss_name: name of the class loss, by which a longer run is told from this one.
    """

    def __init__(
        self,
        folder: RunFolder,
        state: State,
        data_facts: dict[str, Any],
        processes: Processes,
        settings: Run,
        loss_name: str,
    ) -> None:
        self.folder, self.state, self.data_facts, self.loss_name = folder, state, data_facts, loss_name
        self.processes, self.settings = processes, settings
        self._saved = (-1, -1)  # step and step of the last validation of the newest checkpoint

    @property
    def saved_step(self) -> int:
        """Step of the newest checkpoint; -1 if there is none."""
        return self._saved[0]

    def save(self, metrics: MetricsFile | None) -> None:
        """Write a checkpoint if the state has changed, and then remove those that are no longer needed.

        Args:
            metrics: ``metrics.jsonl``, which is synced first; None on ranks above 0.
        """
        counters = self.state.counters
        if self._saved == (counters.step, counters.evaluated):
            return
        with self.processes.first_only() as first:
            if first and metrics is not None:
                self.folder.require_held()
                metrics.sync()
                counters.metrics_bytes, counters.metrics_sha256 = metrics.length, metrics.sha256
                write_checkpoint(self.folder.checkpoints, counters.step, self.pack())
                self._remove_old()
        self._saved = (counters.step, counters.evaluated)

    def pack(self) -> Checkpoint:
        """The current state as a checkpoint."""
        facts = {
            "counters": self.state.counters.as_dict(),
            "data": self.data_facts,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "kernel": self._path_of_votes(),
            "loss": self.loss_name,
        }
        return Checkpoint.pack(self.state.tensors(), facts)

    def _remove_old(self) -> None:
        """Keep the newest checkpoints up to the current step and the best one; remove the others."""
        counters = self.state.counters
        found = [step for step in checkpoint_steps(self.folder.checkpoints) if step <= counters.step]
        remove_checkpoints(self.folder.checkpoints, {*found[: self.settings.keep], counters.best_step})

    def restore(self) -> int | None:
        """Restore the newest undamaged checkpoint in all processes; its step, None if there is no checkpoint."""
        checkpoint = None
        with self.processes.first_only() as first:
            if first:
                checkpoint = self._find_newest()
        files = (checkpoint.tensors_file, checkpoint.facts_file) if checkpoint else (b"", b"")
        tensors_file, facts_file = (self.processes.share(file if self.processes.first else None) for file in files)
        if not facts_file:
            return None
        self._load(Checkpoint(tensors_file, facts_file))
        return self.state.counters.step

    def _find_newest(self) -> Checkpoint | None:
        remove_leftovers(self.folder.checkpoints)
        checkpoint, complaints = newest_checkpoint(self.folder.checkpoints)
        for complaint in complaints:
            warnings.warn(f"{complaint}; going on from an earlier one", stacklevel=2)
        metrics = self.folder.metrics
        if checkpoint is None and metrics.exists() and metrics.stat().st_size:
            raise TrainingError(
                f"{self.folder.path}: has metrics but no checkpoint to go on from; "
                "--fresh, or another folder, starts over"
            )
        return checkpoint

    def _load(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint, unless it is of other images; warn if the result will not be exact to the bit."""
        facts = checkpoint.facts
        if facts["data"] != self.data_facts:
            raise TrainingError(
                f"{self.folder.path}: its run had other images: {_counts(facts['data'])}, now "
                f"{_counts(self.data_facts)}. --fresh, or another folder, starts over"
            )
        if self.settings.chooses_threads:
            torch.set_num_threads(facts["threads"])
        threads = torch.get_num_threads()
        here = self._path_of_votes()
        path = facts.get("kernel", here and "tiles")  # older checkpoints were made when there was no other path
        if (facts["threads"], facts["torch"], path) != (threads, torch.__version__, here):
            votes = ("", "") if path == here else (f" and summed votes by {path}", f", by {here}")
            warnings.warn(
                f"this run had {facts['threads']} threads of torch {facts['torch']}{votes[0]}, now {threads} of "
                f"{torch.__version__}{votes[1]}: it goes on, but not to the very same bits",
                stacklevel=2,
            )
        try:
            self.state.restore(checkpoint.tensors, Counters.from_dict(facts["counters"]))
        except (RuntimeError, ValueError, KeyError) as error:  # PyTorch's of tensors that do not fit
            reason = str(error).strip().splitlines()[0]
            raise CheckpointError(
                f"{self.folder.path}: the newest checkpoint is not of this network: {reason}. "
                "--fresh, or another folder, starts over"
            ) from None
        self._saved = (self.state.counters.step, self.state.counters.evaluated)

    def _path_of_votes(self) -> str:
        """The path by which votes are summed here; empty for a network without capsule layers."""
        network = self.state.network
        has_votes = any(isinstance(module, CapsuleLayer | ConvCapsuleLayer) for module in network.modules())
        return path_on(next(network.parameters()).device.type) if has_votes else ""

    def best_weights(self) -> tuple[int, dict[str, Tensor]]:
        """Step and weights of the best validation; of the last step without validation or if they are damaged."""
        counters, content = self.state.counters, b""
        if self.processes.first and counters.best_step not in (-1, counters.step):
            try:
                path = checkpoint_path(self.folder.checkpoints, counters.best_step)
                content = read_checkpoint(path).tensors_file
            except CheckpointError as error:
                warnings.warn(f"the best weights are lost, so the last ones are kept: {error}", stacklevel=2)
        content = self.processes.share(content)
        if not content:
            return counters.step, evaluated_part(self.state.tensors())
        return counters.best_step, evaluated_part(Checkpoint(content, b"").tensors)


def _counts(facts: dict[str, Any]) -> str:
    if not facts.keys() >= {"train", "validation", "test", "shape", "classes"}:
        return "none that are named"
    shape, classes = "×".join(map(str, facts["shape"])), len(facts["classes"])
    return f"{facts['train']:,} + {facts['validation']:,} + {facts['test']:,} of {shape} in {classes} classes"
