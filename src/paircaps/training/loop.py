"""The training loop, for every experiment: evaluate if due, save if due, step, log.

Where it stands is a :class:`State`; everything else is a pure function of the recipe and the step. So a run that is
killed at any moment goes on from its newest checkpoint to the very same end.
"""

from __future__ import annotations

import json
import math
import warnings
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from paircaps.data import Loader
from paircaps.errors import CheckpointError, RecipeError, TrainingError
from paircaps.losses import Objective
from paircaps.machine import describe_machine
from paircaps.model_files import read_facts, save_model
from paircaps.network import Network
from paircaps.training import checkpoint
from paircaps.training.datasets import (
    Datasets,
    augmentation,
    labels_per_image,
    load_datasets,
    network_spec,
    targets,
)
from paircaps.training.display import Display
from paircaps.training.distributed import Processes, is_lost_peer, joined_processes, synchronise_norms
from paircaps.training.evaluation import Evaluation, evaluate
from paircaps.training.failure import save_failure
from paircaps.training.folder import RunFolder, locked_folder, prepare
from paircaps.training.optimiser import create_optimiser
from paircaps.training.recipe import Recipe, Run
from paircaps.training.runlog import Events, MetricsFile, TimingFile
from paircaps.training.schedule import rate
from paircaps.training.signals import Stopped, StopSignals
from paircaps.training.state import Average, Counters, State, evaluated_part
from paircaps.training.step import NotFinite, Stepper


@dataclass(frozen=True)
class Result:
    """How a run ended.

    Args:
        folder: where it is.
        trained: what ``model.json`` says of it.
        resumed_at: the step it went on from; None if it was finished before.
    """

    folder: Path
    trained: dict[str, Any]
    resumed_at: int | None


def train(recipe: Recipe, out: Path | str, *, fresh: bool = False, quiet: bool = True) -> Result:
    """Train by a recipe, in a folder; called again, it goes on where it stopped.

    Args:
        recipe: what to do.
        out: the folder of the run.
        fresh: remove a run that is there, and start over.
        quiet: show no progress.

    Raises:
        PaircapsError: that says what is wrong, and what to do.
        Stopped: after SIGINT or SIGTERM; the state is saved.
    """
    device = choose_device(recipe.run)
    if recipe.run.threads:
        torch.set_num_threads(recipe.run.threads)
    with ExitStack() as stack:
        processes = stack.enter_context(joined_processes(device.type))
        folder = RunFolder(Path(out).expanduser())
        with processes.first_only() as first:
            if first:
                folder = stack.enter_context(locked_folder(folder.path))
                prepare(folder, recipe, fresh)
        finished = json.loads(processes.share(_finished(folder) if processes.first else None))
        if finished:
            return Result(folder.path, finished, None)
        try:
            return Training(recipe, folder, processes, device, quiet or not processes.first).run()
        except RuntimeError as error:
            if not is_lost_peer(error):
                raise
            raise TrainingError(
                "lost another process of this training; the next start goes on from the newest checkpoint"
            ) from error


def _finished(folder: RunFolder) -> bytes:
    """What a finished run says of itself, as JSON; null of one that is not."""
    return json.dumps(read_facts(folder.path)["trained"] if folder.model.exists() else None).encode()


def choose_device(run: Run) -> torch.device:
    """The device of a run; ``auto`` is the fastest there is."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    name = next(name for name, is_there in there.items() if is_there) if run.device == "auto" else run.device
    if not there[name]:
        have = ", ".join(device for device, is_there in there.items() if is_there)
        raise RecipeError(f"run.device: this machine has no {name}, only {have}")
    return torch.device(name, torch.cuda.current_device() if name == "cuda" else None)


class Training:
    """One start of a run.

    Args:
        recipe: what to do.
        folder: where to write, which is this run's and locked.
        processes: that train together.
        device: to compute on.
        quiet: show no progress.
    """

    def __init__(
        self, recipe: Recipe, folder: RunFolder, processes: Processes, device: torch.device, quiet: bool
    ) -> None:
        self.recipe, self.folder, self.processes, self.device, self.quiet = recipe, folder, processes, device, quiet
        self.datasets = load_datasets(recipe.data).to(device)
        self.labels_per_image = labels_per_image(self.datasets.train)
        self.loader = _loader(recipe, self.datasets, processes)
        self.whole_loader = _loader(recipe, self.datasets, Processes())
        self.steps = _steps(recipe, len(self.loader))
        self.state, self.objective = self._build()
        self.judge = self._build_judge()

    def _build(self) -> tuple[State, Objective]:
        """The network with its first weights, which depend on the seed alone."""
        recipe = self.recipe
        objective = build_objective(recipe, self.datasets)
        _require_trainable(recipe, objective, self.datasets, self.processes)
        objective.to(self.device, memory_format=memory_format(recipe))  # pyright: ignore[reportCallIssue]
        if self.processes.world_size > 1 and recipe.train.sync_norm:
            synchronise_norms(objective)
        network = objective.network
        average = Average(network, recipe.train.ema) if recipe.train.ema else None
        return State(network, create_optimiser(recipe.optimiser, network), average, Counters()), objective

    def _build_judge(self) -> Objective:
        """A network of its own for evaluation, whose statistics can be settled without disturbing the training."""
        judge = build_objective(self.recipe, self.datasets)
        judge.to(self.device, memory_format=memory_format(self.recipe))  # pyright: ignore[reportCallIssue]
        if self.processes.world_size > 1:
            synchronise_norms(judge)
        return judge

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Train to the end."""
        resumed_at = self._restore()
        self.stepper = Stepper(self.recipe, self.objective, self.state, self.processes, self.device)
        counters = self.state.counters
        with ExitStack() as stack:
            self.stop = stack.enter_context(StopSignals())
            self._open_logs(stack)
            self._start_message(resumed_at)
            if resumed_at is None:
                self._save()
            signal, batches = 0, self._batches()
            while True:
                if signal:
                    self._save_and_stop(signal)
                if self._evaluation_is_due():
                    self._evaluate()
                if self._checkpoint_is_due():
                    self._save()
                if counters.step == self.steps:
                    break
                signal = self._step(next(batches))
            return Result(self.folder.path, self._finish(), resumed_at or 0)

    def _batches(self) -> Any:
        """This process's share of every batch still to come."""
        length = len(self.loader)
        epoch, start = divmod(self.state.counters.step, length)
        while True:
            yield from self.loader.epoch(epoch, start)
            epoch, start = epoch + 1, 0

    def _step(self, batch: Any) -> int:
        """One step and its log; the signal that some process was sent, or 0."""
        counters, recipe = self.state.counters, self.recipe
        epoch, place = divmod(counters.step, len(self.loader))
        lr = recipe.optimiser.lr * rate(recipe.schedule, counters.step, self.steps, len(self.loader))
        images = min(self.loader.batch_size, len(self.datasets.train) - place * self.loader.batch_size)
        try:
            sums, gradient, signal = self.stepper(batch, images, lr, self.stop.number)
        except NotFinite as error:
            raise self._failed(error, epoch, place) from None
        counters.step += 1
        counters.window.add(sums)
        counters.epoch.add(sums)
        self.display.step(sums.loss / sums.images, sums.right / sums.images)
        if counters.step % recipe.train.log_every == 0:
            self._log_window(lr, gradient)
        return signal or (self.stop.number if self.processes.world_size == 1 else 0)

    def _log_window(self, lr: float, gradient: float) -> None:
        counters = self.state.counters
        means = counters.window.means()
        row = {"epoch": counters.step / len(self.loader), **means, "lr": lr, "gradient": gradient}
        self._write_row("step", row)
        self.display.log(counters.step, means["loss"], means["accuracy"])
        if self.timing is not None:
            self.timing.add(step=counters.step, images_per_second=round(self.display.speed(counters.step), 1))
        counters.window = type(counters.window)()

    def _write_row(self, kind: str, row: dict[str, Any]) -> None:
        step = self.state.counters.step
        if self.metrics is not None:
            self.metrics.add({"kind": kind, "step": step, **row})
            self.events.add(kind, step, row)

    # --- validation and test -------------------------------------------------------------------------------------

    def _evaluation_is_due(self) -> bool:
        step = self.state.counters.step
        at_end_of_epoch = step > 0 and step % (len(self.loader) * self.recipe.evaluate.every) == 0
        return self.state.counters.evaluated != step and (at_end_of_epoch or step == self.steps)

    def _evaluate(self) -> None:
        """The row of an epoch, with validation if images were held back for it, and a checkpoint."""
        counters = self.state.counters
        row: dict[str, Any] = {"epoch": counters.step / len(self.loader), **counters.epoch.means("train_")}
        if self.datasets.validation is not None:
            self._settle(self.state.evaluated_weights())
            seen = self._look_at(self.datasets.validation)
            row |= {"validation_loss": seen.loss, "validation_accuracy": seen.accuracy}
            score = (seen.accuracy, -seen.loss)
            if counters.best is None or score > counters.best:
                counters.best, counters.best_step = score, counters.step
        self._write_row("epoch", row)
        self.display.say(_epoch_line(row))
        counters.epoch = type(counters.epoch)()
        counters.evaluated = counters.step
        self._save()

    def _settle(self, weights: Any) -> None:
        """Give the judge these weights, with batch norm's statistics taken anew from the first training batches."""
        self.judge.network.load_state_dict(weights)
        norms = [part for part in self.judge.modules() if isinstance(part, _BatchNorm)]
        if self.recipe.evaluate.settle and norms:
            momenta = [norm.momentum for norm in norms]
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # a plain mean of all batches
            self.judge.train()
            with torch.no_grad():
                for _, batch in zip(range(self.recipe.evaluate.settle), self.loader.epoch(0), strict=False):
                    self._heed()
                    labels, originals = targets(batch)
                    self.judge(batch.images.contiguous(memory_format=memory_format(self.recipe)), labels, originals)
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
        self.judge.eval()

    def _look_at(self, dataset: Any) -> Evaluation:
        settings = self.recipe.evaluate
        return evaluate(
            self.judge,
            dataset,
            batch_size=settings.batch_size,
            mirror=settings.mirror,
            processes=self.processes,
            channels_last=self.recipe.train.channels_last,
            between=self._heed,
        )

    def _heed(self) -> None:
        """Stop in the middle of an evaluation, which a resume then repeats; several processes would have to agree."""
        if self.stop.number and self.processes.world_size == 1:
            self._save_and_stop(self.stop.number)

    def _finish(self) -> dict[str, Any]:
        """Test the best weights, once, and save them as the model."""
        counters = self.state.counters
        step, tensors = self._best_tensors()
        self._settle(evaluated_part(tensors))
        seen = self._look_at(self.datasets.test)
        row = {"epoch": counters.step / len(self.loader), "weights_of_step": step, **_numbers(seen)}
        self._write_row("test", row)
        trained = {
            "dataset": self.recipe.data.name,
            "tested_on": self.datasets.test.info.name,
            "note": self.datasets.test.info.note,
            "seed": self.recipe.train.seed,
            "steps": counters.step,
            "weights_of_step": step,
            "validation_accuracy": counters.best[0] if counters.best else None,
            "test_accuracy": seen.accuracy,
            "test_loss": seen.loss,
            "test_images": seen.images,
            "loss": {**asdict(self.recipe.loss), "name": self.objective.loss_name},
            "mirror": self.recipe.evaluate.mirror,
            "machine": describe_machine(),
        }
        with self.processes.first_only() as first:
            if first and self.metrics is not None:
                self.metrics.sync()
                save_model(self.folder.path, self.judge.network, trained)
        self.display.say(f"test accuracy {100 * seen.accuracy:.2f} % of {seen.images:,} images")
        return trained

    def _best_tensors(self) -> tuple[int, Any]:
        """The weights that did best in validation, or the last ones."""
        counters, content = self.state.counters, b""
        if self.processes.first and counters.best_step not in (-1, counters.step):
            try:
                content = checkpoint.read(checkpoint.path_of(self.folder.checkpoints, counters.best_step)).tensors_file
            except CheckpointError as error:
                warnings.warn(f"the best weights are lost, so the last ones are kept: {error}", stacklevel=2)
        content = self.processes.share(content)
        if not content:
            return counters.step, self.state.tensors()
        return counters.best_step, checkpoint.Checkpoint(content, b"").tensors

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def _checkpoint_is_due(self) -> bool:
        step = self.state.counters.step
        return step % self.recipe.run.checkpoint_every == 0 and self.saved[0] != step

    def _save(self) -> None:
        """Write a checkpoint, and only then remove those that nobody needs any more."""
        counters = self.state.counters
        if self.saved == (counters.step, counters.evaluated):
            return
        with self.processes.first_only() as first:
            if first and self.metrics is not None:
                self.metrics.sync()
                counters.metrics_bytes = self.metrics.length
                checkpoint.write(
                    self.folder.checkpoints, counters.step, checkpoint.pack(self.state.tensors(), self._facts())
                )
                self._prune()
        self.saved = (counters.step, counters.evaluated)

    def _prune(self) -> None:
        folder = self.folder.checkpoints
        there = [step for step in checkpoint.steps(folder) if step <= self.state.counters.step]
        checkpoint.prune(folder, {*there[: self.recipe.run.keep], self.state.counters.best_step})

    def _facts(self) -> dict[str, Any]:
        return {
            "counters": self.state.counters.as_dict(),
            "data": self.datasets.facts(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }

    def _restore(self) -> int | None:
        """Go back to the newest whole checkpoint; the step it is of, None if there is none."""
        found = None
        self.saved = (-1, -1)
        with self.processes.first_only() as first:
            if first:
                checkpoint.remove_leftovers(self.folder.checkpoints)
                found, complaints = checkpoint.newest(self.folder.checkpoints)
                for complaint in complaints:
                    warnings.warn(f"{complaint}; going on from an earlier one", stacklevel=2)
                if found is None and self.folder.metrics.exists() and self.folder.metrics.stat().st_size:
                    raise TrainingError(
                        f"{self.folder.path}: has metrics but no checkpoint to go on from; --fresh starts over"
                    )
        files = [
            self.processes.share(content if self.processes.first else None)
            for content in ((found.tensors_file, found.facts_file) if found else (b"", b""))
        ]
        if not files[1]:
            return None
        return self._take(checkpoint.Checkpoint(*files))

    def _take(self, found: checkpoint.Checkpoint) -> int:
        facts = found.facts
        if facts["data"] != self.datasets.facts():
            raise TrainingError(
                f"{self.folder.path}: its run had other images: {_counts(facts['data'])}, now {_counts(self.datasets.facts())}. "
                "--fresh starts over"
            )
        if facts["threads"] != torch.get_num_threads() or facts["torch"] != torch.__version__:
            warnings.warn(
                f"this run had {facts['threads']} threads of torch {facts['torch']}, now {torch.get_num_threads()} of "
                f"{torch.__version__}: it goes on, but not to the very same bits",
                stacklevel=2,
            )
        self.state.restore(found.tensors, Counters.from_dict(facts["counters"]))
        counters = self.state.counters
        self.saved = (counters.step, counters.evaluated)
        return counters.step

    def _save_and_stop(self, signal: int) -> None:
        self._save()
        raise Stopped(signal, self.state.counters.step)

    def _failed(self, error: NotFinite, epoch: int, place: int) -> TrainingError:
        """Save a step that cannot be taken: the whole batch, of all processes, can be had again by its number."""
        step = self.state.counters.step + 1
        with self.processes.first_only() as first:
            if first:
                save_failure(self.folder, self.state, self._facts(), self.whole_loader.batch(epoch, place), error)
        return TrainingError(
            f"stopped before step {step:,}: {error}. `paircaps replay {self.folder.path}` shows it again"
        )

    # --- logs ----------------------------------------------------------------------------------------------------

    def _open_logs(self, stack: ExitStack) -> None:
        counters, first = self.state.counters, self.processes.first
        events = self.folder.events if first and self.recipe.run.tensorboard else None
        self.events = stack.enter_context(closing(Events(events, counters.step)))
        self.metrics: MetricsFile | None = None
        self.timing: TimingFile | None = None
        if first:
            self.metrics = stack.enter_context(closing(MetricsFile(self.folder.metrics, counters.metrics_bytes)))
            self.timing = stack.enter_context(closing(TimingFile(self.folder.timing)))
            self.timing.add(start=counters.step, processes=self.processes.world_size, machine=describe_machine())
        self.display = stack.enter_context(
            closing(Display(self.steps, counters.step, self.loader.batch_size, self.quiet))
        )

    def _start_message(self, resumed_at: int | None) -> None:
        if resumed_at is not None:
            self.display.say(f"{self.folder.path}: going on from step {resumed_at:,} of {self.steps:,}")
            return
        held = 0 if self.datasets.validation is None else len(self.datasets.validation)
        self.display.say(
            f"{self.folder.path}: {self.recipe.model.name}, {self.recipe.model.routing}, {self.objective.loss_name} loss; "
            f"{len(self.datasets.train):,} images to train on, {held:,} to choose by, {len(self.datasets.test):,} to "
            f"test on; {self.steps:,} steps of {self.loader.batch_size}"
        )


def build_objective(recipe: Recipe, datasets: Datasets) -> Objective:
    """The network of a recipe and its loss; its first weights depend on the seed alone."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.train.seed)
            network = Network(network_spec(recipe, datasets.train))
    except (TypeError, ValueError) as error:
        raise RecipeError(f"model: {error}") from None
    try:
        return Objective(network, recipe.loss, labels_per_image(datasets.train))
    except ValueError as error:
        raise RecipeError(f"loss.name: {error}") from None


def memory_format(recipe: Recipe) -> torch.memory_format:
    """How images and kernels lie in memory."""
    return torch.channels_last if recipe.train.channels_last else torch.contiguous_format


def _loader(recipe: Recipe, datasets: Datasets, processes: Processes) -> Loader:
    """Batches of the training images; a last one that is not full is left out, unless it is the only one."""
    steps = augmentation(recipe.augment)
    if steps is not None and datasets.train.drawn and recipe.loss.decoder != "none":
        raise RecipeError("augment: these images are drawn beside their originals, which would not be augmented")
    size = recipe.train.batch_size
    if size % processes.world_size:
        raise RecipeError(f"train.batch_size: {size} images cannot be shared by {processes.world_size} processes")
    return Loader(
        datasets.train,
        size,
        steps,
        recipe.train.seed,
        drop_last=len(datasets.train) >= size,
        rank=processes.rank,
        world_size=processes.world_size,
    )


def _steps(recipe: Recipe, steps_per_epoch: int) -> int:
    epochs, steps = recipe.train.epochs, recipe.train.steps
    return int(min(math.inf if epochs is None else epochs * steps_per_epoch, math.inf if steps is None else steps))


def _require_trainable(recipe: Recipe, objective: Objective, datasets: Datasets, processes: Processes) -> None:
    """Batch norm has nothing to learn from one image, and says so late and in its own words."""
    if not any(isinstance(part, _BatchNorm) for part in objective.modules()):
        return
    together = processes.world_size if not recipe.train.sync_norm else 1
    least = min(recipe.train.batch_size, len(datasets.train)) // (recipe.train.accumulate * together)
    if least < 2:
        raise RecipeError(
            f"batch norm needs two images at a time: {len(datasets.train)} images to train on, train.batch_size "
            f"{recipe.train.batch_size}, train.accumulate {recipe.train.accumulate}, {processes.world_size} processes"
        )


def _numbers(seen: Evaluation) -> dict[str, Any]:
    return {name: value for name, value in seen.as_dict().items() if isinstance(value, int | float)}


def _epoch_line(row: dict[str, Any]) -> str:
    text = (
        f"epoch {row['epoch']:g}: training loss {row['train_loss']:.4f}, accuracy {100 * row['train_accuracy']:.2f} %"
    )
    if "validation_loss" in row:
        loss, accuracy = row["validation_loss"], 100 * row["validation_accuracy"]
        text += f"; validation loss {loss:.4f}, accuracy {accuracy:.2f} %"
    return text


def _counts(facts: dict[str, Any]) -> str:
    shape = "×".join(map(str, facts["shape"]))
    return f"{facts['train']:,} + {facts['validation']:,} + {facts['test']:,} of {shape} in {len(facts['classes'])} classes"
