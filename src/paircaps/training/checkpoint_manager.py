"""Keeps the state of a run on disk: writes checkpoints, removes old ones, goes back to the newest that is whole."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from paircaps.errors import CheckpointError, TrainingError
from paircaps.training import checkpoint_files
from paircaps.training.distributed import Processes
from paircaps.training.run_folder import RunFolder
from paircaps.training.runlog import MetricsFile
from paircaps.training.state import Counters, State, evaluated_part


class CheckpointManager:
    """The checkpoints of a run.

    Args:
        folder: of the run.
        state: that is saved and restored.
        data_facts: what must be the same of the images when a run goes on.
        processes: of which the first writes, and all take what it reads.
        keep: newest checkpoints that stay.
    """

    def __init__(
        self, folder: RunFolder, state: State, data_facts: dict[str, Any], processes: Processes, keep: int
    ) -> None:
        self.folder, self.state, self.data_facts = folder, state, data_facts
        self.processes, self.keep = processes, keep
        self._saved = (-1, -1)

    @property
    def saved_step(self) -> int:
        """The step of the newest checkpoint."""
        return self._saved[0]

    def save(self, metrics: MetricsFile | None) -> None:
        """Write a checkpoint, if the state has changed, and only then remove those that nobody needs any more."""
        counters = self.state.counters
        if self._saved == (counters.step, counters.evaluated):
            return
        with self.processes.first_only() as first:
            if first and metrics is not None:
                metrics.sync()
                counters.metrics_bytes = metrics.length
                checkpoint_files.write(self.folder.checkpoints, counters.step, self.pack())
                self._prune()
        self._saved = (counters.step, counters.evaluated)

    def pack(self) -> checkpoint_files.Checkpoint:
        """The state as it is now."""
        facts = {
            "counters": self.state.counters.as_dict(),
            "data": self.data_facts,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        return checkpoint_files.pack(self.state.tensors(), facts)

    def _prune(self) -> None:
        counters = self.state.counters
        there = [step for step in checkpoint_files.steps(self.folder.checkpoints) if step <= counters.step]
        checkpoint_files.prune(self.folder.checkpoints, {*there[: self.keep], counters.best_step})

    def restore(self) -> int | None:
        """Go back to the newest whole checkpoint; the step it is of, None if there is none."""
        found = None
        with self.processes.first_only() as first:
            if first:
                found = self._newest()
        files = (found.tensors_file, found.facts_file) if found else (b"", b"")
        tensors_file, facts_file = (self.processes.share(file if self.processes.first else None) for file in files)
        if not facts_file:
            return None
        self._take(checkpoint_files.Checkpoint(tensors_file, facts_file))
        return self.state.counters.step

    def _newest(self) -> checkpoint_files.Checkpoint | None:
        checkpoint_files.remove_leftovers(self.folder.checkpoints)
        found, complaints = checkpoint_files.newest(self.folder.checkpoints)
        for complaint in complaints:
            warnings.warn(f"{complaint}; going on from an earlier one", stacklevel=2)
        metrics = self.folder.metrics
        if found is None and metrics.exists() and metrics.stat().st_size:
            raise TrainingError(
                f"{self.folder.path}: has metrics but no checkpoint to go on from; "
                "--fresh, or another folder, starts over"
            )
        return found

    def _take(self, found: checkpoint_files.Checkpoint) -> None:
        facts = found.facts
        if facts["data"] != self.data_facts:
            raise TrainingError(
                f"{self.folder.path}: its run had other images: {_counts(facts['data'])}, now "
                f"{_counts(self.data_facts)}. --fresh, or another folder, starts over"
            )
        threads = torch.get_num_threads()
        if facts["threads"] != threads or facts["torch"] != torch.__version__:
            warnings.warn(
                f"this run had {facts['threads']} threads of torch {facts['torch']}, now {threads} of "
                f"{torch.__version__}: it goes on, but not to the very same bits",
                stacklevel=2,
            )
        self.state.restore(found.tensors, Counters.from_dict(facts["counters"]))
        self._saved = (self.state.counters.step, self.state.counters.evaluated)

    def best_weights(self) -> tuple[int, dict[str, Tensor]]:
        """The step that did best in validation and its weights, or the last one's."""
        counters, content = self.state.counters, b""
        if self.processes.first and counters.best_step not in (-1, counters.step):
            path = checkpoint_files.path_of(self.folder.checkpoints, counters.best_step)
            try:
                content = checkpoint_files.read(path).tensors_file
            except CheckpointError as error:
                warnings.warn(f"the best weights are lost, so the last ones are kept: {error}", stacklevel=2)
        content = self.processes.share(content)
        if not content:
            return counters.step, evaluated_part(self.state.tensors())
        return counters.best_step, evaluated_part(checkpoint_files.Checkpoint(content, b"").tensors)


def _counts(facts: dict[str, Any]) -> str:
    shape, classes = "×".join(map(str, facts["shape"])), len(facts["classes"])
    return f"{facts['train']:,} + {facts['validation']:,} + {facts['test']:,} of {shape} in {classes} classes"
