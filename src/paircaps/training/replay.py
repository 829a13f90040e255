"""A failed step, taken again from its own folder."""

from __future__ import annotations

from paircaps.training.assemble import build_objective, choose_device, memory_format
from paircaps.training.datasets import load_datasets
from paircaps.training.distributed import Processes
from paircaps.training.failure import Replay, read_failure, retake
from paircaps.training.optimiser import create_optimiser
from paircaps.training.run_folder import RunFolder
from paircaps.training.state import Counters, State
from paircaps.training.step import Stepper


def replay(folder: RunFolder) -> Replay:
    """Take the failed step of a run again, on the batch and from the state that were saved with it."""
    seen, saved, batch = read_failure(folder)
    recipe = folder.read_recipe()
    device = choose_device(recipe.run)
    objective = build_objective(recipe, load_datasets(recipe.data), device)
    network = objective.network
    state = State(network, create_optimiser(recipe.optimiser, network), None, Counters())
    state.restore(saved.tensors, Counters.from_dict(saved.facts["counters"]))
    stepper = Stepper(recipe, objective, state, Processes(), device, memory_format(recipe, objective))
    return retake(stepper, batch, seen)
