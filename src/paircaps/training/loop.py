"""The training loop: evaluate if due, save if due, step, log.

Everything that changes from step to step is in a :class:`State`; all else is a pure function of the recipe and the
step. So a run that is killed at any moment continues from its newest checkpoint to the same result, bit for bit.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from signal import SIGTERM
from typing import Any

import torch
import torch.nn.functional as F

from paircaps._utils.files import write_whole
from paircaps._utils.machine import describe_machine
from paircaps._utils.plugins import noting_plugins
from paircaps._utils.words import counted
from paircaps.data import Batch
from paircaps.data.registry import folder_path
from paircaps.errors import ModelFileError, RecipeError, TrainingError
from paircaps.model_files import load, read_metadata, save_model
from paircaps.routing import Routing
from paircaps.training.assemble import (
    build_objective,
    choose_device,
    fit_network,
    memory_format,
    require_trainable,
    training_loader,
)
from paircaps.training.checkpoints import CheckpointManager
from paircaps.training.datasets import Datasets, load_datasets
from paircaps.training.distributed import Processes, is_lost_peer, joined_processes, synchronise_norms
from paircaps.training.evaluation import Evaluation, Evaluator
from paircaps.training.failure import save_failure
from paircaps.training.logging import ProgressDisplay, RunLog
from paircaps.training.optimiser import create_optimiser
from paircaps.training.prepare import prepare
from paircaps.training.recipe import Data, Recipe
from paircaps.training.resolve import resolve, set_threads, shared_recipe
from paircaps.training.run_folder import RunFolder, locked_folder
from paircaps.training.schedule import count_steps, images_per_step, rate, side_at, steps_per_epoch
from paircaps.training.signals import Stopped, StopSignals
from paircaps.training.state import Counters, State, Sums, create_average
from paircaps.training.step import NotFinite, Stepper

_NO_MEMORY = r"not enough memory|can't allocate|alloc_cpu|out of memory|invalid buffer size"
"""Words of PyTorch's errors when memory runs out, on all its devices."""


@dataclass(frozen=True)
class TrainingResult:
    """Result of a finished run.

    Args:
        folder: where the run is.
        trained: section ``trained`` of ``model.json``: dataset, accuracies, loss, steps, machine.
        resumed_at: step that this call began at; None if the run was finished before.
    """

    folder: Path
    trained: dict[str, Any]
    resumed_at: int | None


def train(
    recipe: Recipe,
    out: Path | str,
    *,
    fresh: bool = False,
    quiet: bool = True,
    hours: float | None = None,
    extend: bool = False,
) -> TrainingResult:
    """Train a network by a recipe; the same call on the same folder continues a run that was stopped.

    >>> from tempfile import TemporaryDirectory
    >>> from paircaps import load
    >>> from paircaps.training.recipes import load_recipe
    >>> short = {"train": {"steps": 2, "batch_size": 16}, "data": {"limit": 64}}
    >>> recipe = load_recipe("glyphs", short)  # without the second argument, as it is
    >>> with TemporaryDirectory() as folder:
    ...     result = train(recipe, folder)
    ...     network = load(result.folder)
    >>> result.trained["steps"]
    2

    Args:
        recipe: the recipe, as :func:`paircaps.training.recipes.load_recipe` gives it.
        out: folder of the run.
        fresh: True to remove a run that is there and start over.
        quiet: True to show no progress.
        hours: time that the training may take on this machine; its length and schedule are changed to fit, by the speed
            of a few steps. A run that has begun keeps its length.
        extend: True to make a run that is there as long as the recipe says, where it then is what a run of that length
            would have been: not where the learning rates so far depend on the length.

    Returns:
        the folder of the run, which :func:`paircaps.load` takes, and what was reached.

    Raises:
        PaircapsError: if something is wrong that the user can change; the message says what.
        Stopped: after SIGINT, SIGTERM or SIGHUP, or when torchrun is gone; the state is saved.
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be a Recipe, as load_recipe('glyphs') gives, got {recipe!r}")
    if extend and (fresh or hours is not None):
        raise RecipeError("--extend goes on with a run to the recipe's length, which --fresh and --hours do not")
    _require_out_of_data(recipe.data, Path(out).expanduser())
    device = choose_device(recipe.run)
    with ExitStack() as stack:
        stack.enter_context(noting_plugins())
        stack.callback(torch.set_num_threads, torch.get_num_threads())  # a next training chooses among as many
        set_threads(recipe.run)
        processes = stack.enter_context(joined_processes(device.type, recipe.run.timeout))
        folder = RunFolder(Path(out).expanduser())
        try:
            # rank 0 locks the folder until the end, and checks that it holds this run or none
            datasets = None
            with processes.first_only(patient=True) as first:
                if first:
                    folder = stack.enter_context(locked_folder(folder.path))
                    begun = None if fresh else folder.begun_recipe()
                    recipe, datasets = resolve(recipe, begun, device, hours, processes, quiet)
                    prepare(folder, recipe, fresh, extend)
            recipe = shared_recipe(recipe, processes)
            # a finished run is not trained again
            finished = json.loads(processes.share(_finished(folder) if processes.first else None))
            if finished:
                return TrainingResult(folder.path, finished, None)
            return Training(recipe, folder, processes, device, quiet or not processes.first, datasets).run()
        except (RuntimeError, MemoryError) as error:
            translated = _translate(error)
            if translated is None:
                raise
            raise translated from error


def _require_out_of_data(data: Data, out: Path) -> None:
    """Refuse to write a run into a folder of pictures: its folders would be classes of the next training."""
    for name in {data.name, data.test} - {None, ""}:
        pictures = folder_path(str(name))
        if pictures is not None and pictures.resolve() in (out.resolve(), *out.resolve().parents):
            raise RecipeError(f"--out {out} lies in the folder of pictures {name}, whose subfolders are its classes")


def _translate(error: RuntimeError | MemoryError) -> TrainingError | None:
    """PyTorch's error of a lost process or a lack of memory as one that says what to do; None for other errors."""
    if is_lost_peer(error):
        return TrainingError("lost another process of this training; the next start goes on from the newest checkpoint")
    if isinstance(error, MemoryError) or re.search(_NO_MEMORY, str(error), re.IGNORECASE):
        return TrainingError(
            "not enough memory: a smaller train.batch_size, or a larger train.accumulate, needs less "
            f"({str(error).strip().splitlines()[0][:200] if str(error).strip() else 'MemoryError'})"
        )
    return None


def _finished(folder: RunFolder) -> bytes:
    """Section ``trained`` of a finished run's ``model.json`` as JSON; ``null`` if the run is not finished."""
    trained = None
    if folder.model.exists():
        try:
            load(folder.path)
            trained = read_metadata(folder.path)["trained"]
        except (ModelFileError, KeyError) as error:
            warnings.warn(f"{error}; the model is made again from the checkpoints", stacklevel=2)
    return json.dumps(trained).encode()


def _iou_facts(best: float | None, evaluation: Evaluation) -> dict[str, Any]:
    """What section ``trained`` says of masks: mean IoU in validation and test, and that of each class."""
    return {
        "validation_mean_iou": best,
        "test_mean_iou": evaluation.mean_iou,
        "test_iou_per_class": evaluation.iou_per_class,
    }


class Training:
    """One start of a run, from its newest checkpoint or from the beginning.

    Args:
        recipe: recipe of the run.
        folder: folder of the run, locked.
        processes: all processes of the training.
        device: where to compute.
        quiet: True to show no progress.
        datasets: images to use instead of the recipe's.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        processes: Processes,
        device: torch.device,
        quiet: bool,
        datasets: Datasets | None = None,
    ) -> None:
        self.recipe, self.folder, self.processes, self.quiet = recipe, folder, processes, quiet
        self.stop = StopSignals()

        # images, and how many steps they make
        self.datasets = (datasets or load_datasets(recipe.data)).to(device)
        processes.meet()
        self.loader = training_loader(recipe, self.datasets, processes)
        images, batch_size = len(self.datasets.train), recipe.train.decided_batch_size
        self.steps_per_epoch = steps_per_epoch(images, batch_size)
        self.images_per_step = images_per_step(images, batch_size)
        self.steps = count_steps(recipe, self.steps_per_epoch)

        # network, loss and everything else that steps change
        objective = build_objective(recipe, self.datasets, device)
        require_trainable(recipe, objective, self.datasets, processes)
        layout = memory_format(recipe, objective)
        if processes.world_size > 1 and recipe.train.sync_norm:
            synchronise_norms(objective)
        network = objective.network
        fit_network(network, self.datasets.train, processes)
        average = create_average(network, recipe.train.ema) if recipe.train.ema else None
        self.loss_name = objective.loss_name
        self.state = State(network, create_optimiser(recipe.optimiser, network), average, Counters())

        # a second network for evaluation, and the checkpoints; the stepper needs the restored state
        evaluated = build_objective(recipe, self.datasets, device)
        self.evaluator = Evaluator(
            evaluated, recipe.evaluate, self.loader, processes, layout, self._stop_evaluation_if_asked
        )
        self.checkpoints = CheckpointManager(
            folder, self.state, self.datasets.facts(), processes, recipe.run, self.loss_name
        )
        self.resumed_at = self.checkpoints.restore()
        if self.state.counters.step > self.steps:
            raise TrainingError(
                f"{folder.path}: its checkpoint is of step {self.state.counters.step:,}, the run has {self.steps:,}. "
                "--fresh, or another folder, starts over"
            )
        self.stepper = Stepper(recipe, objective, self.state, processes, device, layout)

    def run(self) -> TrainingResult:
        """Train to the end."""
        with ExitStack() as stack:
            stack.enter_context(self.stop)
            self.open_log(stack)
            signal, batches = 0, self.batches()
            while True:
                if signal:
                    self._save_and_stop(signal)
                if self._evaluation_is_due():
                    self._evaluate()
                if self._checkpoint_is_due():
                    self.checkpoints.save(self.log.metrics)
                if self.state.counters.step == self.steps:
                    return TrainingResult(self.folder.path, self._finish(), self.resumed_at or 0)
                signal = self.step(self.resized(next(batches)))

    def batches(self) -> Iterator[Batch]:
        """Share of this process in every batch from the current step on, without end."""
        epoch, start = divmod(self.state.counters.step, self.steps_per_epoch)
        while True:
            yield from self.loader.epoch(epoch, start)
            epoch, start = epoch + 1, 0

    def resized(self, batch: Batch) -> Batch:
        """The batch with its images in the size of the current step, by ``train.sizes``."""
        side = side_at(self.recipe.train.sizes, self.state.counters.step, self.steps)
        if side is None or tuple(batch.images.shape[-2:]) == (side, side):
            return batch
        images = F.interpolate(batch.images, (side, side), mode="bilinear", antialias=True)
        return replace(batch, images=images)

    def step(self, batch: Batch) -> int:
        """Take a step and log it.

        Args:
            batch: share of this process in the images of the step.

        Returns:
            Number of the signal that any process received; 0 for none.
        """
        counters, recipe = self.state.counters, self.recipe
        epoch, place = divmod(counters.step, self.steps_per_epoch)
        share = rate(recipe.schedule, counters.step, self.steps, self.steps_per_epoch)

        # step
        self.stepper.objective.set_progress(counters.step / self.steps)
        try:
            sums, gradient, signal = self.stepper(batch, self.images_per_step, share, self._signal())
        except NotFinite as error:
            raise self._save_failure(error, epoch, place) from None
        counters.step += 1

        # log
        counters.window.add(sums)
        counters.epoch.add(sums)
        self.log.display.advance_bar(sums.loss / sums.images, sums.right / sums.images)
        if counters.step % recipe.train.log_every == 0:
            self.log.log_steps(counters.step / self.steps_per_epoch, recipe.optimiser.lr * share, gradient)
        return signal or (self.stop.number if self.processes.world_size == 1 else 0)

    # --- validation and test -------------------------------------------------------------------------------------

    def _evaluation_is_due(self) -> bool:
        step = self.state.counters.step
        at_end_of_epoch = step > 0 and step % (self.steps_per_epoch * self.recipe.evaluate.every) == 0
        return self.state.counters.evaluated != step and (at_end_of_epoch or step == self.steps)

    def _evaluate(self) -> None:
        """Validate if images were held back for it, log the epoch, and save a checkpoint."""
        counters = self.state.counters
        row: dict[str, Any] = {"epoch": counters.step / self.steps_per_epoch, **counters.epoch.means("train_")}
        if self.datasets.validation is not None:
            self.evaluator.load_weights(self.state.evaluated_weights())
            evaluation = self.evaluator.evaluate(self.datasets.validation)
            self._require_finite("validation", evaluation.loss)
            row |= {"validation_loss": evaluation.loss, "validation_accuracy": evaluation.accuracy}
            row |= {} if evaluation.mean_iou is None else {"validation_mean_iou": evaluation.mean_iou}
            score = (evaluation.score, -evaluation.loss)
            if counters.best is None or score > counters.best:
                counters.best, counters.best_step = score, counters.step
        self.log.log_epoch(row)
        counters.epoch = Sums()
        counters.evaluated = counters.step
        self.checkpoints.save(self.log.metrics)

    def _require_finite(self, what: str, loss: float) -> None:
        """Stop, as at a step that is not finite, if the loss of an evaluation is not finite; nothing is saved of it."""
        if math.isfinite(loss):
            return
        weights = self.evaluator.objective.state_dict()
        bad = [name for name, value in weights.items() if value.is_floating_point() and not value.isfinite().all()]
        where = f"; not finite are the weights {', '.join(bad[:5])}{' and more' if len(bad) > 5 else ''}" if bad else ""
        raise TrainingError(
            f"stopped at step {self.state.counters.step:,}: the {what}'s loss is not finite: {loss}{where}. "
            f"The newest checkpoint is of step {max(self.checkpoints.saved_step, 0):,}. A lower optimiser.lr or an "
            "optimiser.clip_norm may help, with --fresh or in another folder"
        )

    def _finish(self) -> dict[str, Any]:
        """Test the best weights once, save them as the model, and return section ``trained`` of ``model.json``."""
        counters = self.state.counters

        # test
        step, weights = self.checkpoints.best_weights()
        self.evaluator.load_weights(weights)
        evaluation = self.evaluator.evaluate(self.datasets.test)
        self._require_finite("test", evaluation.loss)
        self.log.log_row("test", {"weights_of_step": step, **evaluation.numbers()})

        # save the model: from now on the run is finished
        best = counters.best[0] if counters.best and step == counters.best_step else None
        trained = {
            "dataset": self.recipe.data.name,
            "tested_on": self.datasets.test.info.name,
            "note": self.datasets.test.info.note,
            "seed": self.recipe.train.seed,
            "steps": counters.step,
            "weights_of_step": step,
            "validation_accuracy": best if evaluation.mean_iou is None else None,
            "test_accuracy": evaluation.accuracy,
            **({} if evaluation.mean_iou is None else _iou_facts(best, evaluation)),
            "test_loss": evaluation.loss,
            "test_images": evaluation.images,
            "skipped_pictures": len(self.datasets.skipped),
            "loss": {**asdict(self.recipe.loss), "name": self.loss_name},
            "views": self.recipe.evaluate.views,
            "machine": describe_machine(),
        }
        with self.processes.first_only() as first:
            if first and self.log.metrics is not None:
                self.folder.require_held()
                self.log.metrics.sync()
                save_model(self.folder.path, self.evaluator.objective.network, trained)
        self.log.log_end()
        return trained

    # --- stopping ------------------------------------------------------------------------------------------------

    def _checkpoint_is_due(self) -> bool:
        step = self.state.counters.step
        return step % self.recipe.run.checkpoint_every == 0 and self.checkpoints.saved_step != step

    def _signal(self) -> int:
        """Number of the signal that this process received; 0 for none. The end of torchrun counts as SIGTERM."""
        if not self.stop.number and self.processes.parent_is_lost():
            warnings.warn("torchrun, which started this process, has ended", stacklevel=2)
            return SIGTERM
        return self.stop.number

    def _save_and_stop(self, signal: int) -> None:
        self.checkpoints.save(self.log.metrics)
        self.log.log_end()
        raise Stopped(signal, self.state.counters.step)

    def _stop_evaluation_if_asked(self) -> None:
        """Stop after a signal during an evaluation, which a resume repeats; several processes finish it first."""
        if self.stop.number and self.processes.world_size == 1:
            self._save_and_stop(self.stop.number)

    def _save_failure(self, error: NotFinite, epoch: int, place: int) -> TrainingError:
        """Save a failed step for ``paircaps replay``, and return the error that ends the run.

        Args:
            error: loss and gradient that are not finite.
            epoch: epoch of the step, from 0.
            place: number of the batch within the epoch, from 0.
        """
        with self.processes.first_only() as first:
            if first:  # the batch of all processes follows from its number
                batch = training_loader(self.recipe, self.datasets, Processes()).batch(epoch, place)
                state = self.checkpoints.pack()
                save_failure(self.folder, state, self.state.counters, self.resized(batch), error)
        return TrainingError(
            f"stopped before step {self.state.counters.step + 1:,} changed any weight: {error}. "
            f"`paircaps replay {self.folder.path}` shows it again. A lower optimiser.lr or an optimiser.clip_norm may "
            "help, with --fresh or in another folder"
        )

    # --- log -----------------------------------------------------------------------------------------------------

    def open_log(self, stack: ExitStack) -> None:
        """Open the log of this start; it is closed with the stack."""
        counters = self.state.counters
        display = ProgressDisplay(self.steps, counters.step, self.loader.batch_size, self.quiet)
        tensorboard = self.recipe.run.tensorboard
        self.log = stack.enter_context(closing(RunLog(self.folder, counters, self.processes, tensorboard, display)))
        if self.processes.first and self.datasets.skipped:
            write_whole(self.folder.skipped, "".join(f"{line}\n" for line in self.datasets.skipped).encode())
        display.print_line(self._first_line())

    def _first_line(self) -> str:
        if self.resumed_at is not None:
            return f"{self.folder.path}: going on from step {self.resumed_at:,} of {self.steps:,}"
        datasets = self.datasets
        has_routing = any(isinstance(part, Routing) for part in self.state.network.modules())
        settings = self.recipe.model
        model = f"{settings.name}, {settings.routing}" if has_routing else settings.name
        held_back = 0 if datasets.validation is None else len(datasets.validation)
        return (
            f"{self.folder.path}: {model}, {self.loss_name} loss; {len(datasets.train):,} images to train on, "
            f"{held_back:,} for validation, {len(datasets.test):,} to test on; {counted(self.steps, 'step')} of "
            f"{counted(self.images_per_step, 'image')} in {self.recipe.train.precision} on "
            f"{counted(torch.get_num_threads(), 'thread')}"
        )
