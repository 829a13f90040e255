"""Speed of training, and the share of the time that the training loop itself takes.

For every recipe the whole loop (loading and augmentation, forward, backward, the check for finite values, update,
metrics, logs) is timed beside bare forward, backward and update on one batch in memory, one step of each in turn. Since
noise of the machine differs from step to step, the share of forward, backward and update is measured within each step
of the loop too.
Where a dataset is not on this machine, another of the same cost takes its place: noise for a stored one, glyphs for
digits.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from paircaps._utils.machine import describe_machine, machine_line
from paircaps.bench.timing import Timing, interleaved
from paircaps.bench.train_step import train_step
from paircaps.data import DataError, ImageDataset
from paircaps.data.registry import dataset_metadata, offline_options, require_metadata
from paircaps.data.synthetic.noise import noise_dataset
from paircaps.errors import RecipeError
from paircaps.training.assemble import build_objective, choose_device, training_loader
from paircaps.training.datasets import Datasets, hold_back, open_dataset
from paircaps.training.distributed import Processes
from paircaps.training.loop import Training
from paircaps.training.recipe import Data, Recipe
from paircaps.training.run_folder import locked_folder

GOAL = 0.97
"""Share of a step's time that forward, backward and update should have."""

WARM_UP = 3
"""First steps, which do not count."""

_NOISE_IMAGES = 2048


def bench_train(recipes: Mapping[str, Recipe], seconds: float = 10.0) -> dict[str, object]:
    """Measure images a second of recipes, and the share of the bare speed that their loop reaches.

    Args:
        recipes: recipes by name.
        seconds: approximate time of all steps of each case together.
    """
    rows = [_bench_recipe(name, recipe, seconds) for name, recipe in recipes.items()]
    return {
        "recipes": list(recipes),
        "seconds": seconds,
        "goal": GOAL,
        "rows": rows,
        "machine": describe_machine(),
    }


def _bench_recipe(name: str, recipe: Recipe, seconds: float) -> dict[str, object]:
    """Time the loop and the bare step of one recipe."""
    if recipe.train.precision != "fp32" or recipe.train.accumulate > 1 or recipe.train.ema:
        raise RecipeError(f"{name}: the bare step it would be timed beside is fp32, without accumulate and ema")
    datasets, source = stand_in_datasets(recipe.data)
    # the loop runs in a temporary folder, beside a bare step of the same recipe
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = stack.enter_context(locked_folder(Path(place)))
        training = Training(recipe, folder, Processes(), choose_device(recipe.run), quiet=True, datasets=datasets)
        training.open_log(stack)
        batch = training_loader(recipe, datasets, Processes()).batch(0, 0)
        bare = train_step(recipe, build_objective(recipe, datasets, choose_device(recipe.run)), batch)
        steps = _steps_in(bare, seconds)
        loop_step = LoopStep(training)
        timings = interleaved({"loop": loop_step, "bare": bare}, steps, warm_up=WARM_UP)
        checkpoint = _checkpoint_seconds(training)
    images = recipe.train.batch_size
    loop, alone = timings["loop"], timings["bare"]
    return {
        "recipe": name,
        "data": source,
        "batch_size": recipe.train.batch_size,
        "steps": steps,
        **_rates(loop, images),
        "bare": images / alone.median,
        "ratio": alone.median / loop.median,
        "share": loop_step.share(),
        "checkpoint_seconds": checkpoint,
    }


def _rates(timing: Timing, images: int) -> dict[str, float]:
    """Images a second, with quartiles."""
    return {"median": images / timing.median, "low": images / timing.high, "high": images / timing.low}


def stand_in_datasets(settings: Data) -> tuple[Datasets, str]:
    """Load the images of a recipe without a download, or others of the same cost.

    Args:
        settings: data of the recipe.

    Returns:
        the datasets, and a description of their origin.
    """
    metadata = dataset_metadata(settings.name)
    try:
        options = {**settings.options, **offline_options(settings.name)}
        whole: ImageDataset = open_dataset(settings.name, "train", settings.folder, options)
        source = "synthetic" if metadata is not None and not metadata.files else "the real files"
    except DataError:
        if metadata is None:
            raise
        whole, source = _stand_in(settings)
    train, validation = hold_back(whole, settings.validation, settings.seed)
    return Datasets(train.in_memory(), validation, whole), source


def _stand_in(settings: Data) -> tuple[ImageDataset, str]:
    """Dataset of the same cost, and its description: glyphs for synthetic digits, noise for stored images."""
    metadata = require_metadata(settings.name)
    if metadata.base is not None:
        name = settings.name.replace("mnist", "glyphs")
        return open_dataset(name, "train", "", settings.options), name
    side = cast("int | None", settings.options.get("image_size"))
    return noise_dataset(metadata, _NOISE_IMAGES, side), "noise of the same shape"


class LoopStep:
    """Step of the whole loop; measures the share of forward, backward and update in each call.

    Args:
        training: the training whose steps are taken.
    """

    def __init__(self, training: Training) -> None:
        self.training, self.batches = training, training.batches()
        self.shares: list[float] = []
        self._inside = 0.0
        stepper, optimiser = training.stepper, training.state.optimiser
        stepper.forward_backward = self._timed(stepper.forward_backward)
        optimiser.step = self._timed(optimiser.step)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its time is added up."""

        def call(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self._inside += time.perf_counter() - begin

        return call

    def __call__(self) -> None:
        """Take a step."""
        self._inside, begin = 0.0, time.perf_counter()
        self.training.step(next(self.batches))
        self.shares.append(self._inside / (time.perf_counter() - begin))

    def share(self) -> float:
        """Median share of forward, backward and update in the time of a step."""
        return statistics.median(self.shares[WARM_UP:])


def _steps_in(step: Callable[[], None], seconds: float) -> int:
    """Number of steps that take about ``seconds``, at least 9."""
    step()
    begin = time.perf_counter()
    step()
    return max(9, round(seconds / (time.perf_counter() - begin)))


def _checkpoint_seconds(training: Training) -> float:
    """Time to save a checkpoint."""
    begin = time.perf_counter()
    training.checkpoints.save(training.log.metrics)
    return time.perf_counter() - begin


def as_markdown(result: dict) -> str:
    """Format the result as a table."""
    lines = [
        "# How fast training goes",
        "",
        f"`paircaps bench train {' '.join(result['recipes'])} --seconds {result['seconds']:g}`",
        "",
        "Images a second of the whole loop, with quartiles, beside bare forward, backward and update on one batch in "
        "memory; one step of each in turn, medians over all steps. Their ratio is as noisy as the machine; the "
        "share of a step's time that is forward, backward and update is taken within each step, and should be "
        f"{100 * result['goal']:.0f} % or more. {machine_line(result['machine'])}.",
        "",
        "| recipe | batch | steps | images a second | quartiles | bare | loop / bare | share | a checkpoint | data |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        spread = f"{row['low']:,.0f} to {row['high']:,.0f}"
        lines.append(
            f"| {row['recipe']} | {row['batch_size']} | {row['steps']} | {row['median']:,.0f} | {spread} | "
            f"{row['bare']:,.0f} | {100 * row['ratio']:.1f} % | {100 * row['share']:.1f} % | "
            f"{row['checkpoint_seconds']:.2f} s | {row['data']} |"
        )
    return "\n".join(lines) + "\n"
