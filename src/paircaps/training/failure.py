"""A step whose loss or gradient is not finite: saved whole, so that it can be looked at again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from paircaps._utils.files import write_whole
from paircaps.data import Batch
from paircaps.errors import CheckpointError, TrainingError
from paircaps.losses import Objective
from paircaps.model_files import contiguous
from paircaps.training import checkpoint_files
from paircaps.training.run_folder import RunFolder
from paircaps.training.state import Counters
from paircaps.training.step import NotFinite, Stepper

_STATE, _BATCH, _FACTS = "state", "batch.safetensors", "failure.json"
_EXTRA = "extra/"


@dataclass(frozen=True)
class Replay:
    """What a saved step shows when it is taken again.

    Args:
        step: its number.
        loss: an image, now.
        gradient: its length, now.
        reported: what the loss was when it was saved.
        layers: modules whose output is not finite, the first one first.
        weights: parameters that are not finite before the step.
        gradients: parameters whose gradient is not finite.
    """

    step: int
    loss: float
    gradient: float
    reported: float
    layers: list[str]
    weights: list[str]
    gradients: list[str]

    @property
    def shown_again(self) -> bool:
        """Whether the step fails again."""
        return not (torch.tensor([self.loss, self.gradient]).isfinite().all())


def save_failure(
    folder: RunFolder, saved: checkpoint_files.Checkpoint, counters: Counters, batch: Batch, error: NotFinite
) -> None:
    """Write down weights and optimiser as they were before the step, its whole batch, and what was seen.

    Batch norm's running statistics have seen the batch by then; a training step does not read them.
    """
    shutil.rmtree(folder.failure, ignore_errors=True)
    folder.failure.mkdir()
    checkpoint_files.write_state(folder.failure / _STATE, saved)
    tensors = {"images": batch.images, "labels": batch.labels, "index": batch.index}
    tensors |= {f"{_EXTRA}{name}": value for name, value in batch.extras.items()}
    write_whole(folder.failure / _BATCH, tensors_to_bytes(contiguous(tensors)))
    seen = {"step": counters.step + 1, "loss": str(error.loss), "gradient": str(error.gradient)}
    write_whole(folder.failure / _FACTS, (json.dumps(seen, indent=2) + "\n").encode())


def read_failure(folder: RunFolder) -> tuple[dict[str, Any], checkpoint_files.Checkpoint, Batch]:
    """What was seen, the state and the batch of a failed step.

    Raises:
        TrainingError: if no step failed here, or what was saved is damaged.
    """
    if not (folder.failure / _FACTS).is_file():
        raise TrainingError(f"{folder.path}: no step failed here, so there is nothing to replay")
    try:
        seen = json.loads((folder.failure / _FACTS).read_bytes())
        tensors = tensors_from_bytes((folder.failure / _BATCH).read_bytes())
        state = checkpoint_files.read(folder.failure / _STATE)
        extras = {name.removeprefix(_EXTRA): value for name, value in tensors.items() if name.startswith(_EXTRA)}
        return seen, state, Batch(tensors["images"], tensors["labels"], tensors["index"], extras)
    except (OSError, ValueError, KeyError, SafetensorError, CheckpointError) as error:
        raise TrainingError(f"{folder.failure}: damaged: {error}") from None


def retake(stepper: Stepper, batch: Batch, seen: dict[str, Any]) -> Replay:
    """Take a failed step again, watching every layer; nothing is updated."""
    objective = stepper.objective
    weights = [name for name, value in objective.named_parameters() if not value.isfinite().all()]
    with _watched(objective) as layers:
        objective.train()
        loss, _, _ = stepper.forward_backward(batch, len(batch))
    gradients = [name for name, p in objective.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    length = stepper.gradient_length()
    return Replay(seen["step"], loss / len(batch), length, float(seen["loss"]), layers, weights, gradients)


@contextmanager
def _watched(objective: Objective) -> Iterator[list[str]]:
    """Names of the modules whose output is not finite, in the order in which that shows."""
    found: list[str] = []

    def watch(name: str) -> Any:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            values = output if isinstance(output, tuple) else (output,)
            if any(isinstance(value, Tensor) and not value.isfinite().all() for value in values):
                found.append(name)

        return look

    hooks = [module.register_forward_hook(watch(name)) for name, module in objective.named_modules() if name]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
