"""Speed of training, and the shares of the time that the training loop and the convolutions take.

For every recipe the whole loop (loading and augmentation, forward, backward, the check for finite values, update,
metrics, logs) is timed in fp32 and in the precision that ``auto`` chooses on this machine. In the same rounds, one step
of each in turn, two limits are timed in the chosen precision: bare forward, backward and update on one batch in memory,
and the convolutions of the network alone. Since noise of the machine differs from step to step, the share of forward,
backward and update is measured within each step of the loop too.
Where a dataset is not on this machine, another of the same cost takes its place: noise for a stored one, glyphs for
digits.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from paircaps._utils.machine import describe_machine, machine_line
from paircaps.bench.convolutions import convolutions_of
from paircaps.bench.timing import Timing, interleaved, ratio
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
from paircaps.training.resolve import choose_precision
from paircaps.training.run_folder import locked_folder

GOAL = 0.97
"""Share of a step's time that forward, backward and update should have."""

WARM_UP = 3
"""First steps, which do not count."""

_NOISE_IMAGES = 2048


def bench_train(recipes: Mapping[str, Recipe], seconds: float = 10.0) -> dict[str, object]:
    """Measure images a second of recipes, and the shares of the bare and the convolutions' speed that they reach.

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
    """Time the loop in both precisions, the bare step and the convolutions of one recipe."""
    if recipe.train.accumulate > 1 or recipe.train.ema or recipe.train.sizes:
        raise RecipeError(f"{name}: the bare step it would be timed beside is without accumulate, ema and sizes")
    datasets, source = stand_in_datasets(recipe.data)
    chosen = in_chosen_precision(recipe)
    with ExitStack() as stack:
        training = stack.enter_context(open_training(chosen, datasets))
        batch = training_loader(chosen, datasets, Processes()).batch(0, 0)
        bare = train_step(chosen, build_objective(chosen, datasets, choose_device(chosen.run)), batch)
        loop, cases = LoopStep(training), {"bare": bare, "convolutions": convolutions_of(bare)}
        if chosen.train.precision != "fp32":
            cases["fp32"] = LoopStep(stack.enter_context(open_training(_in_precision(recipe, "fp32"), datasets)))
        steps = _steps_in(bare, seconds)
        timings = interleaved({"loop": loop, **cases}, steps, warm_up=WARM_UP)
        checkpoint = _checkpoint_seconds(training)
    return {
        "recipe": name,
        "data": source,
        "batch_size": recipe.train.decided_batch_size,
        "steps": steps,
        "precision": chosen.train.precision,
        **_rows_of(timings, recipe.train.decided_batch_size),
        "share": loop.share(),
        "checkpoint_seconds": checkpoint,
    }


def _rows_of(timings: dict[str, Timing], images: int) -> dict[str, object]:
    """Images a second of every case, and the ratios of their times, from steps of so many images."""
    loop, bare = timings["loop"], timings["bare"]
    plain = timings.get("fp32", loop)  # the loop itself, where auto chooses fp32
    return {
        **_rates(loop, images),
        "fp32": _rates(plain, images),
        "faster": _spread(ratio(plain, loop)),
        "bare": images / bare.median,
        "ratio": bare.median / loop.median,
        "convolutions": _spread(ratio(timings["convolutions"], loop)),
    }


def in_chosen_precision(recipe: Recipe) -> Recipe:
    """A recipe in the precision that ``auto`` chooses on this machine, whatever its own is."""
    return _in_precision(recipe, choose_precision(choose_device(recipe.run)))


def _in_precision(recipe: Recipe, precision: str) -> Recipe:
    return replace(recipe, train=replace(recipe.train, precision=precision))


@contextmanager
def open_training(recipe: Recipe, datasets: Datasets) -> Iterator[Training]:
    """Training of a recipe that is ready for its first step, in a temporary folder.

    Args:
        recipe: the recipe.
        datasets: its images.
    """
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = stack.enter_context(locked_folder(Path(place)))
        training = Training(recipe, folder, Processes(), choose_device(recipe.run), quiet=True, datasets=datasets)
        training.open_log(stack)
        yield training


def _spread(timing: Timing) -> dict[str, float]:
    """Median and quartiles."""
    return {"median": timing.median, "low": timing.low, "high": timing.high}


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
    train, validation = hold_back(whole, settings.validation, settings.seed, settings.splits_by_class)
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
        "Images a second of the whole loop, with quartiles, in the precision that `auto` chooses here and in fp32, "
        "beside bare forward, backward and update on one batch in memory, and beside the network's convolutions alone, "
        "forward and backward; one step of each in turn, medians over all steps. The last two are in the chosen "
        "precision. The convolutions' share is their time alone over that of a step, round by round: 100 % would be "
        "their own limit. The ratio of loop and bare step is as noisy as the machine; the share of a step's time that "
        "is forward, backward and update is taken within each step, and should be "
        f"{100 * result['goal']:.0f} % or more. {machine_line(result['machine'])}.",
        "",
        "| recipe | batch | steps | precision | images a second | quartiles | in fp32 | quartiles | faster than fp32 | "
        "bare | loop / bare | share | convolutions' share | quartiles | a checkpoint | data |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(_row_as_markdown(row) for row in result["rows"]),
    ]
    return "\n".join(lines) + "\n"


def _row_as_markdown(row: dict) -> str:
    """Format the measurements of one recipe as a row of the table."""
    plain, limit = row["fp32"], row["convolutions"]
    cells = [
        row["recipe"],
        row["batch_size"],
        row["steps"],
        row["precision"],
        *_rate_cells(row),
        *_rate_cells(plain),
        f"{row['faster']['median']:.2f} ×",
        f"{row['bare']:,.0f}",
        f"{100 * row['ratio']:.1f} %",
        f"{100 * row['share']:.1f} %",
        f"{100 * limit['median']:.1f} %",
        f"{100 * limit['low']:.1f} to {100 * limit['high']:.1f} %",
        f"{row['checkpoint_seconds']:.2f} s",
        row["data"],
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _rate_cells(rates: dict[str, float]) -> list[str]:
    """Median and quartiles of images a second, as two cells."""
    return [f"{rates['median']:,.0f}", f"{rates['low']:,.0f} to {rates['high']:,.0f}"]
