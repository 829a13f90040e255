"""Steps whose loss or gradient is not finite: saved with batch and state, so that they can be replayed."""

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
from paircaps.training.assemble import build_objective, choose_device, memory_format
from paircaps.training.checkpoints import Checkpoint, read_checkpoint, write_files
from paircaps.training.datasets import load_datasets
from paircaps.training.distributed import Processes
from paircaps.training.optimiser import create_optimiser
from paircaps.training.run_folder import RunFolder
from paircaps.training.schedule import count_steps, steps_per_epoch
from paircaps.training.state import Counters, State
from paircaps.training.step import NotFinite, Stepper

_STATE, _BATCH, _FACTS = "state", "batch.safetensors", "failure.json"
_EXTRA = "extra/"


@dataclass(frozen=True)
class Replay:
    """Result of replaying a failed step.

    Args:
        step: number of the step.
        loss: mean loss per image in the replay.
        gradient: norm of the gradient in the replay.
        reported: mean loss per image when the step failed.
        layers: modules whose output is not finite, in the order of computation.
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
        """True if the step fails again."""
        return not (torch.tensor([self.loss, self.gradient]).isfinite().all())


def save_failure(folder: RunFolder, saved: Checkpoint, counters: Counters, batch: Batch, error: NotFinite) -> None:
    """Save the state before the failed step, its batch of all processes, and its loss and gradient.

    Batch norm's running statistics already contain the batch; a training step does not read them.

    Args:
        folder: where the run is.
        saved: state before the step.
        counters: counters before the step.
        batch: images of the step.
        error: loss and gradient that were not finite.
    """
    shutil.rmtree(folder.failure, ignore_errors=True)
    folder.failure.mkdir()
    write_files(folder.failure / _STATE, saved)
    tensors = {"images": batch.images, "labels": batch.labels, "index": batch.index}
    tensors |= {f"{_EXTRA}{name}": value for name, value in batch.extras.items()}
    write_whole(folder.failure / _BATCH, tensors_to_bytes(contiguous(tensors)))
    facts = {"step": counters.step + 1, "loss": str(error.loss), "gradient": str(error.gradient)}
    write_whole(folder.failure / _FACTS, (json.dumps(facts, indent=2) + "\n").encode())


def read_failure(folder: RunFolder) -> tuple[dict[str, Any], Checkpoint, Batch]:
    """Read loss and gradient, state and batch of a failed step.

    Raises:
        TrainingError: if no step of this run failed, or the files are damaged.
    """
    if not (folder.failure / _FACTS).is_file():
        raise TrainingError(f"{folder.path}: no step failed here, so there is nothing to replay")
    try:
        facts = json.loads((folder.failure / _FACTS).read_bytes())
        tensors = tensors_from_bytes((folder.failure / _BATCH).read_bytes())
        state = read_checkpoint(folder.failure / _STATE)
        extras = {name.removeprefix(_EXTRA): value for name, value in tensors.items() if name.startswith(_EXTRA)}
        return facts, state, Batch(tensors["images"], tensors["labels"], tensors["index"], extras)
    except (OSError, ValueError, KeyError, SafetensorError, CheckpointError) as error:
        raise TrainingError(f"{folder.failure}: damaged: {error}") from None


def replay(folder: RunFolder) -> Replay:
    """Compute the failed step of a run again, on the batch and from the state that were saved with it."""
    facts, saved, batch = read_failure(folder)
    recipe = folder.read_recipe()
    device = choose_device(recipe.run)
    datasets = load_datasets(recipe.data)
    objective = build_objective(recipe, datasets, device)
    steps = count_steps(recipe, steps_per_epoch(len(datasets.train), recipe.train.decided_batch_size))
    objective.set_progress((facts["step"] - 1) / steps)
    network = objective.network
    state = State(network, create_optimiser(recipe.optimiser, network), None, Counters())
    state.restore(saved.tensors, Counters.from_dict(saved.facts["counters"]))
    stepper = Stepper(recipe, objective, state, Processes(), device, memory_format(recipe, objective))
    return _retake(stepper, batch, facts)


def _retake(stepper: Stepper, batch: Batch, facts: dict[str, Any]) -> Replay:
    """Compute a failed step again, with every layer's output checked; no weight is updated."""
    objective = stepper.objective
    weights = [name for name, value in objective.named_parameters() if not value.isfinite().all()]
    with _watched(objective) as layers:
        objective.train()
        loss, _, _ = stepper.forward_backward(batch, len(batch))
    gradients = [name for name, p in objective.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    norm = stepper.gradient_norm()
    return Replay(facts["step"], loss / len(batch), norm, float(facts["loss"]), layers, weights, gradients)


@contextmanager
def _watched(objective: Objective) -> Iterator[list[str]]:
    """A list that receives the names of modules whose output is not finite, in the order of computation."""
    found: list[str] = []

    def watch(name: str) -> Any:
        def check(module: nn.Module, inputs: Any, output: Any) -> None:
            values = output if isinstance(output, tuple) else (output,)
            if any(isinstance(value, Tensor) and not value.isfinite().all() for value in values):
                found.append(name)

        return check

    hooks = [module.register_forward_hook(watch(name)) for name, module in objective.named_modules() if name]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
