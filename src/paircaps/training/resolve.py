"""Values of a recipe that depend on the machine and the images: threads, precision, length, batch size.

They are decided once, when a run begins, and kept in its ``config.toml``, so that a resume goes on with the same ones.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, count

import torch

from paircaps._utils.processors import free_cores, has_fast_bfloat16
from paircaps._utils.words import counted, visible
from paircaps.errors import RecipeError
from paircaps.training.assemble import build_objective, memory_format, training_loader
from paircaps.training.datasets import Datasets, load_datasets
from paircaps.training.distributed import Processes
from paircaps.training.evaluation import Evaluator
from paircaps.training.from_images import decide, decide_as_before, has_undecided
from paircaps.training.optimiser import create_optimiser
from paircaps.training.recipe import AUTO, Recipe, Run
from paircaps.training.recipe_io import parse_toml, recipe_from_tree, to_toml
from paircaps.training.schedule import count_steps, images_per_step, steps_per_epoch, stretched, with_length_of
from paircaps.training.state import Counters, State
from paircaps.training.step import Stepper

_FEWEST_STEPS, _TIMED_SECONDS = 3, 5.0
"""Steps that are timed at least, and the seconds that they take together at least."""

_MARGIN = 0.97
"""Share of the time that is planned: checkpoints and the start take the rest."""


def set_threads(settings: Run) -> None:
    """Set PyTorch's number of threads; ``auto`` takes as many as there are free cores.

    It never takes more than PyTorch has, and leaves the number alone where ``OMP_NUM_THREADS`` sets it.

    Args:
        settings: section ``run`` of the recipe.
    """
    if not settings.chooses_threads:
        torch.set_num_threads(int(settings.threads))
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), free_cores()))


def shared_recipe(recipe: Recipe, processes: Processes) -> Recipe:
    """The recipe of rank 0, in all processes: machines may differ, and so would their choices."""
    if processes.world_size == 1:
        return recipe
    text = processes.share(to_toml(recipe).encode() if processes.first else None).decode()
    return replace(recipe_from_tree(parse_toml(text, "recipe of rank 0")), run=recipe.run)


def resolve(
    recipe: Recipe, begun: Recipe | None, device: torch.device, hours: float | None, processes: Processes, quiet: bool
) -> tuple[Recipe, Datasets | None]:
    """A recipe whose precision, length and ``auto`` keys are decided, and its images if they had to be loaded for that.

    Args:
        recipe: the recipe as the user gave it.
        begun: recipe of the run that this one continues, whose decisions stay; None for a new run.
        device: where to compute.
        hours: time that the training may take; None for the length of the recipe.
        processes: all processes of the training.
        quiet: True to print nothing.
    """
    if begun is not None:
        return _resolve_as_before(recipe, begun, hours is not None), None
    recipe = replace(recipe, data=recipe.data.split_by("class"))
    if recipe.train.precision == AUTO:
        recipe = replace(recipe, train=replace(recipe.train, precision=choose_precision(device)))
    datasets = load_datasets(recipe.data) if has_undecided(recipe) or hours is not None else None
    sentences = []
    if datasets is not None and has_undecided(recipe):
        images, classes = len(datasets.train), datasets.train.classes
        recipe, sentence = decide(recipe, images, classes, processes.world_size)
        sentences.append(sentence)
    if datasets is not None and hours is not None:
        recipe, expectation = fit_to_hours(recipe, hours, device, processes.world_size, datasets)
        sentences.append(expectation)
    if sentences and not quiet:
        print("\n".join(map(visible, sentences)), file=sys.stderr, flush=True)
    return recipe, datasets


def _resolve_as_before(recipe: Recipe, begun: Recipe, keep_length: bool) -> Recipe:
    """A recipe with the decisions of the run that it continues.

    Args:
        recipe: the recipe as the user gave it.
        begun: recipe of the run.
        keep_length: whether length and schedule are those of the run too, as with ``--hours``.
    """
    recipe = decide_as_before(replace(recipe, data=recipe.data.split_like(begun.data)), begun)
    if recipe.train.precision == AUTO:
        recipe = replace(recipe, train=replace(recipe.train, precision=begun.train.precision))
    if not keep_length:
        return recipe
    length = {"epochs": begun.train.epochs, "steps": begun.train.steps}
    schedule = with_length_of(recipe.schedule, begun.schedule)
    return replace(recipe, train=replace(recipe.train, **length), schedule=schedule)


def choose_precision(device: torch.device) -> str:
    """The fastest precision that trains as well as fp32: bf16 where the device multiplies it faster, else fp32."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if device.type == "cpu" and has_fast_bfloat16() else "fp32"


# --- length within a number of hours ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasuredTimes:
    """Times of the parts of a training on this machine, in seconds.

    Args:
        step: a training step.
        validation: one validation with its settling of batch norm.
        test: the test at the end with its settling.
    """

    step: float
    validation: float
    test: float


def fit_to_hours(
    recipe: Recipe, hours: float, device: torch.device, world_size: int = 1, datasets: Datasets | None = None
) -> tuple[Recipe, str]:
    """A recipe with the length that fits so many hours on this machine, and a sentence on what to expect.

    Args:
        recipe: recipe of any length.
        hours: time that the training may take.
        device: where to compute.
        world_size: number of processes that share each batch.
        datasets: its images; they are loaded if they are not given.

    Raises:
        RecipeError: if not even one step fits.
    """
    datasets = (datasets or load_datasets(recipe.data)).to(device)
    times = measure_times(recipe, datasets, device, world_size)
    per_epoch = steps_per_epoch(len(datasets.train), recipe.train.decided_batch_size)
    steps = steps_within(3600 * hours, times, per_epoch, recipe.evaluate.every)
    if steps < 1:
        raise RecipeError(
            f"--hours: {hours:g} is too little: a step takes {times.step:.3g} s, and validation and test "
            f"{times.validation + times.test:.3g} s"
        )
    fitted = with_length(recipe, steps, per_epoch)
    seconds = expected_seconds(count_steps(fitted, per_epoch), times, per_epoch, recipe.evaluate.every)
    speed = images_per_step(len(datasets.train), recipe.train.decided_batch_size) / times.step
    epochs = fitted.train.decided_epochs
    length = counted(epochs, "epoch") if epochs else counted(fitted.train.steps or 0, "step")
    end = datetime.now() + timedelta(seconds=seconds)
    return fitted, (
        f"--hours {hours:g}: {length} at {speed:,.0f} images/s, as measured now, take "
        f"{timedelta(seconds=round(seconds))} and end at {end:%H:%M}"
    )


def measure_times(recipe: Recipe, datasets: Datasets, device: torch.device, world_size: int = 1) -> MeasuredTimes:
    """Time a few steps and evaluations of a network that is thrown away afterwards.

    Args:
        recipe: the recipe.
        datasets: its images.
        device: where to compute.
        world_size: number of processes that share each batch; the share of one is timed, alone.
    """
    alone = Processes()
    batch_size = max(1, recipe.train.decided_batch_size // world_size)
    parts = math.gcd(recipe.train.accumulate, batch_size)  # accumulate must divide the batch size
    share = replace(recipe, train=replace(recipe.train, batch_size=batch_size, accumulate=parts))
    objective = build_objective(share, datasets, device)
    loader = training_loader(share, datasets, alone)
    layout = memory_format(share, objective)
    network = objective.network

    # steps; the first one allocates
    state = State(network, create_optimiser(share.optimiser, network), None, Counters())
    stepper = Stepper(share, objective, state, alone, device, layout)
    images = images_per_step(len(datasets.train), share.train.decided_batch_size)
    batches = chain.from_iterable(loader.epoch(number) for number in count())
    stepper(next(batches), images, 0.0)
    times: list[float] = []
    while len(times) < _FEWEST_STEPS or sum(times) < _TIMED_SECONDS:
        times.append(_timed(lambda: stepper(next(batches), images, 0.0)))
    step = sorted(times)[len(times) // 2]

    # evaluation of one batch, and settling
    evaluator = Evaluator(build_objective(share, datasets, device), share.evaluate, loader, alone, layout, lambda: None)
    settling = _timed(lambda: evaluator.load_weights(network.state_dict()))
    few = datasets.test.subset(torch.arange(min(len(datasets.test), share.evaluate.batch_size)))
    evaluator.evaluate(few)
    per_image = _timed(lambda: evaluator.evaluate(few)) / len(few) / world_size
    held_back = 0 if datasets.validation is None else len(datasets.validation)
    return MeasuredTimes(
        step,
        per_image * held_back + settling if held_back else 0.0,
        per_image * len(datasets.test) + settling,
    )


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def steps_within(seconds: float, times: MeasuredTimes, per_epoch: int, every: int) -> int:
    """Number of steps that fit a time together with the validations between them and the test.

    Args:
        seconds: time for everything.
        times: measured times.
        per_epoch: steps per epoch.
        every: epochs between two validations.
    """
    left = _MARGIN * seconds - times.test - times.validation  # the last validation comes in any case
    return int(max(0.0, left) / (times.step + times.validation / (per_epoch * every)))


def expected_seconds(steps: int, times: MeasuredTimes, per_epoch: int, every: int) -> float:
    """Time of a training of so many steps, with its validations and its test; arguments as above."""
    validations = -(-steps // (per_epoch * every))
    return (steps * times.step + validations * times.validation + times.test) / _MARGIN


def with_length(recipe: Recipe, steps: int, per_epoch: int) -> Recipe:
    """A recipe of another length, in whole epochs if it has any; its schedule keeps its shape.

    Args:
        recipe: recipe of any length.
        steps: most steps of the new one, at least one.
        per_epoch: steps per epoch.
    """
    epochs = steps // per_epoch
    length = {"epochs": epochs, "steps": None} if epochs else {"epochs": None, "steps": steps}
    changed = replace(recipe, train=replace(recipe.train, **length))
    factor = count_steps(changed, per_epoch) / count_steps(recipe, per_epoch)
    return replace(changed, schedule=stretched(recipe.schedule, factor))
