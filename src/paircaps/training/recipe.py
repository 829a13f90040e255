"""Recipes as frozen dataclasses, one per section: everything that decides what a training does.

A new key of a recipe is a field here and its line in the docstring: ``section.field`` in TOML, on the command line, in
its help and in messages come from them. Each section checks its own values in ``__post_init__``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from paircaps._utils.checks import (
    require_not_negative,
    require_positive,
    require_whole,
    require_within,
)
from paircaps._utils.registry import unknown_name
from paircaps.data.registry import FOLDER, folder_path
from paircaps.errors import RecipeError
from paircaps.losses import Loss
from paircaps.models import is_model, list_models
from paircaps.models.registry import resolve_routing
from paircaps.routing import is_routing, list_routings

__all__ = [
    "Augment",
    "Data",
    "Evaluate",
    "Loss",
    "Model",
    "Optimiser",
    "Recipe",
    "Run",
    "Schedule",
    "Train",
]

LARGE = 1e12
AUTO = "auto"
"""Word for a value that is decided when a run begins, or by the name of the model."""

_SPLIT_BY = "split_by"
"""Option of folders of pictures that says how they are split."""

NULL = "none"
"""Word for None among the options of a model, a routing or a dataset; TOML has no null."""


def options_of(table: Mapping[str, object]) -> dict[str, object]:
    """Options as arguments of Python functions: TOML's lists as tuples, and ``"none"`` as None."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return {key: None if value == NULL else value for key, value in values.items()}


def require_seed(seed: object) -> None:
    """Raise an error unless the seed is a whole number of 64 bits."""
    require_whole(seed=seed)
    require_within("seed", seed, -(2**63), 2**63 - 1)


def is_folder(name: str) -> bool:
    """Whether the name of a dataset stands for a folder of pictures."""
    return name == FOLDER or folder_path(name) is not None


@dataclass(frozen=True)
class Model:
    """Network to train.

    Args:
        name: name of the model, one of paircaps.list_models(), such as resnet-caps-small, capsnet or resnet-pool.
        routing: name of the routing, one of paircaps.list_routings(), such as fm, dynamic or em; auto for the one that
            the model is published with, which a recipe names from then on.
        options: other arguments of the model, such as {"blocks": [4, 4, 4]}; "none" stands for None.
        routing_options: arguments of the routing, such as {"iterations": 1}; "none" stands for None.
    """

    name: str = "resnet-caps-small"
    routing: str = AUTO
    options: dict[str, object] = field(default_factory=dict)
    routing_options: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not is_model(self.name):
            raise unknown_name("name", self.name, list_models())
        object.__setattr__(self, "routing", resolve_routing(self.name, self.routing))
        if not is_routing(self.routing):
            raise unknown_name("routing", self.routing, list_routings())
        for name in ("num_classes", "in_channels", "image_size", "routing", "routing_options"):
            if name in self.options:
                where = f"model.{name}" if name.startswith("routing") else "the images"
                raise ValueError(f"options cannot hold {name!r}, which comes from {where}")


@dataclass(frozen=True)
class Data:
    """Images for training, validation and test.

    Args:
        name: name of the dataset, one of paircaps.data.list_datasets(), or path of a folder with one subfolder per
            class.
        test: dataset to test on; empty for the test split of the same dataset.
        options: arguments of the dataset, such as {"image_size": 32}; "none" stands for None.
        test_options: arguments of the dataset to test on, in addition to options if it is the same dataset.
        folder: folder that is searched for files first; empty for $PAIRCAPS_DATA and the user's cache.
        limit: number of images used of each split, chosen at random by data.seed; all of them by default.
        validation: share of the training images that is held back, to choose the best epoch by; 0 for none.
        seed: seed that decides which images are held back and which ones a limit takes, whatever train.seed is.
        standardise: whether each image is scaled to mean 0 and deviation 1, in training, evaluation and prediction;
            otherwise it stays in 0..1.
        on_error: what is done about damaged pictures of a folder: raise an error that names them, or skip them; the
            run then lists them in skipped.txt.
    """

    name: str = "glyphs"
    test: str = ""
    options: dict[str, object] = field(default_factory=dict)
    test_options: dict[str, object] = field(default_factory=dict)
    folder: str = ""
    limit: int | None = None
    validation: float = 0.1
    seed: int = 0
    standardise: bool = False
    on_error: Literal["raise", "skip"] = "raise"

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name must not be empty")
        if self.limit is not None:
            require_positive(limit=self.limit)
        require_within("validation", self.validation, 0, 0.9)
        require_seed(self.seed)
        if self.on_error == "skip" and not (is_folder(self.name) or is_folder(self.test)):
            raise ValueError(f"on_error skips damaged pictures of folders; {self.name} is none")

    @property
    def splits_by_class(self) -> bool:
        """Whether every class gives its share to validation and test, as in folders, unless an early run did not."""
        return is_folder(self.name) and self.options.get(_SPLIT_BY, "class") == "class"

    def split_by(self, word: str) -> Data:
        """The section with a word on how folders are split, ``"class"`` or ``"content"``, where it has none yet."""
        changed = self
        if is_folder(self.name):
            changed = replace(changed, options={_SPLIT_BY: word, **self.options})
        if self.test and self.test != self.name and is_folder(self.test):
            changed = replace(changed, test_options={_SPLIT_BY: word, **self.test_options})
        return changed

    def split_like(self, begun: Data) -> Data:
        """The section with the word on how folders are split that a run began with, where it has none yet."""
        return self.split_by(str(begun.options.get(_SPLIT_BY) or begun.test_options.get(_SPLIT_BY) or "class"))


@dataclass(frozen=True)
class Augment:
    """Random augmentation of the training images, in this order; none by default.

    Args:
        rotation: largest rotation to either side, in degrees.
        scale: smallest and largest factor of the size, such as [0.8, 1.2].
        shear: largest shear to either side.
        translate: largest shift across and down, in pixels; the border is filled with black.
        crop_padding: pixels added around each image, before a random window is cut out.
        crop_border: what the added pixels show, black or the image itself, by reflection at its edge.
        crop_size: side of that window in pixels; evaluation uses the middle of this size; the image's own by default.
        flip: whether images are mirrored, each with probability 1/2; auto for yes, unless the names of the classes are
            characters or speak of a side. A run keeps what it began with.
        alternate: whether flip mirrors each image in every other epoch instead, half of them in the first.
        brightness: largest value added to or subtracted from an image in 0..1.
        contrast: smallest and largest factor of the contrast, such as [0.5, 1.5].
        cutout: side in pixels of a square at a random place of each image that is painted in its mean colour.
    """

    rotation: float = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    shear: float = 0.0
    translate: int = 0
    crop_padding: int = 0
    crop_border: Literal["black", "reflect"] = "black"
    crop_size: int | None = None
    flip: bool | Literal["auto"] = False
    alternate: bool = False
    brightness: float = 0.0
    contrast: tuple[float, float] = (1.0, 1.0)
    cutout: int = 0

    def __post_init__(self) -> None:
        require_within("rotation", self.rotation, 0, 180)
        require_not_negative(translate=self.translate, crop_padding=self.crop_padding, cutout=self.cutout)
        require_within("shear", self.shear, 0, 10)
        require_within("brightness", self.brightness, 0, 1)
        for name, (least, most), lowest in (("scale", self.scale, 0.01), ("contrast", self.contrast, 0.0)):
            require_within(name, most, lowest, 100)
            require_within(name, least, lowest, 100)
            if least > most:
                raise ValueError(f"{name} must be [least, most], got [{least}, {most}]")
        if self.crop_size is not None:
            require_positive(crop_size=self.crop_size)
        if self.alternate and not self.flip:
            raise ValueError("alternate says how flip mirrors images, and flip is off: set augment.flip to true")


@dataclass(frozen=True)
class Optimiser:
    """Optimiser.

    Args:
        name: name of the optimiser, sgd, adam, adamw, or muon, which orthogonalises the updates of filters and
            matrices and leaves the other weights to another optimiser.
        lr: learning rate, the highest one of the schedule.
        momentum: momentum of sgd and muon.
        nesterov: whether sgd and muon use Nesterov's momentum.
        muon_on: weights that muon changes: filters of convolutions, or matrices, that is filters, vote matrices and
            linear layers.
        muon_iterations: Newton-Schulz iterations that orthogonalise an update of muon.
        rescale: whether muon scales each filter or matrix to the norm √rows before its step, so that only its direction
            is learned.
        rest: optimiser of the weights that muon does not change, sgd, adam or adamw.
        rest_lr: highest learning rate of these weights.
        rates: factors of the learning rate by name of the weight, such as {"*.bias": 2.0, "decoder.*": 0.5}; * stands
            for any text, the last pattern that matches counts, and 0 freezes.
        beta1: decay of the mean of gradients, for adam and adamw.
        beta2: decay of the mean of squared gradients, for adam and adamw.
        eps: number added to adam's denominator; 1e-7 in the paper.
        weight_decay: factor of the weights that is added to their gradient; only kernels decay, not biases, norms or
            EM's costs.
        clip_norm: largest norm of the gradient of all weights together; a longer one is scaled down to it; 0 for no
            limit.
    """

    name: Literal["sgd", "adam", "adamw", "muon"] = "adam"
    lr: float = 1e-3
    momentum: float = 0.9
    nesterov: bool = False
    muon_on: Literal["filters", "matrices"] = "filters"
    muon_iterations: int = 5
    rescale: bool = False
    rest: Literal["sgd", "adam", "adamw"] = "adam"
    rest_lr: float = 1e-3
    rates: dict[str, float] = field(default_factory=dict)
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-7
    weight_decay: float = 0.0
    clip_norm: float = 0.0

    def __post_init__(self) -> None:
        require_within("lr", self.lr, 0, 1e38)
        require_within("rest_lr", self.rest_lr, 0, 1e38)
        require_positive(muon_iterations=self.muon_iterations)
        require_within("muon_iterations", self.muon_iterations, 1, 100)
        for pattern, factor in self.rates.items():
            require_within(f"rates of {pattern!r}", factor, 0, 1e6)
        for name in ("momentum", "beta1", "beta2"):
            require_within(name, getattr(self, name), 0, 0.999999)
        require_within("eps", self.eps, 1e-30, 1)
        require_within("weight_decay", self.weight_decay, 0, 1e3)
        require_within("clip_norm", self.clip_norm, 0, LARGE)
        if self.nesterov and (self.name not in ("sgd", "muon") or not self.momentum):
            raise ValueError(
                f"nesterov needs sgd or muon with a momentum above 0, got {self.name} with {self.momentum}"
            )
        if self.rescale and self.name != "muon":
            raise ValueError(f"rescale is muon's, got {self.name}")


@dataclass(frozen=True)
class Schedule:
    """Schedule of the learning rate.

    Args:
        name: name of the schedule: constant; drops (times factor after each epoch in drops); halving (times factor
            after every so many epochs); linear and cosine (down to final); one-cycle (up from 1/25 over the share
            warm_up of the run, then down to final); trapezoid (constant, then linearly down to final over the share
            cool_down of the run).
        drops: epochs after which the rate drops, such as [81, 122].
        every: epochs between two reductions of halving.
        factor: factor of the rate at each drop or reduction.
        warm_up: epochs of a linear rise from 0 before the schedule; for one-cycle the share of the run that rises.
        cool_down: share of the run in which trapezoid falls.
        final: share of the highest rate that linear, cosine, one-cycle and trapezoid end at.
    """

    name: Literal["constant", "drops", "halving", "linear", "cosine", "one-cycle", "trapezoid"] = "constant"
    drops: tuple[float, ...] = ()
    every: float = 20.0
    factor: float = 0.1
    warm_up: float = 0.0
    cool_down: float = 0.4
    final: float = 0.0

    def __post_init__(self) -> None:
        if self.name == "drops" and not self.drops:
            raise ValueError("drops must name an epoch at least, as [81, 122], got []")
        for drop in self.drops:
            require_within("drops", drop, 0, LARGE)
        require_within("every", self.every, 1e-6, LARGE)
        require_within("factor", self.factor, 0, 1)
        require_within("warm_up", self.warm_up, 0, 1 if self.name == "one-cycle" else LARGE)
        require_within("cool_down", self.cool_down, 0, 1)
        require_within("final", self.final, 0, 1)


@dataclass(frozen=True)
class Train:
    """Length, batch size and precision of the training.

    Args:
        epochs: number of epochs; if steps are given too, whichever ends first. auto: by the number of images to train
            on, more for few. A run keeps what it began with.
        steps: number of steps.
        batch_size: images per step, of all processes together; auto: by the number of images to train on. A run keeps
            what it began with.
        accumulate: number of parts that a batch is cut into to save memory; batch norm then sees one part at a time.
        seed: seed of the first weights, the order of images and their augmentation.
        precision: precision of the computation, fp32, bf16 or fp16 (both by autocast; fp16 with a scaled loss), or
            auto: bf16 where the processor multiplies it faster, else fp32. A run keeps what it began with.
        compile: whether torch.compile is used.
        channels_last: whether images are kept as (B, H, W, C) in memory, which makes most convolutions faster.
        ema: share of the old value, such as 0.999, in a moving average of the weights, which is then evaluated and
            kept; 0 for no average.
        sizes: sides to which images are resized over the run, in equal shares of it, such as [24, 28, 32]; the last
            one must be the network's own. For networks that take images of any size: pooling, and shared votes.
        norm_momentum: weight of a new batch in the running statistics of every batch norm; 0.01 in the paper's recipes.
        sync_norm: whether batch norm is taken over the images of all processes, so that their number does not change
            the result.
        log_every: steps between two rows of metrics.jsonl.
    """

    epochs: int | Literal["auto"] | None = None
    steps: int | None = None
    batch_size: int | Literal["auto"] = 128
    accumulate: int = 1
    seed: int = 0
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    compile: bool = False
    channels_last: bool = True
    ema: float = 0.0
    sizes: tuple[int, ...] = ()
    norm_momentum: float = 0.1
    sync_norm: bool = True
    log_every: int = 50

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs != AUTO:
            require_positive(epochs=self.epochs)
        if self.steps is not None:
            require_positive(steps=self.steps)
        if self.epochs is None and self.steps is None:
            raise ValueError("epochs or steps must be given")
        require_positive(accumulate=self.accumulate, log_every=self.log_every)
        if self.batch_size != AUTO:
            require_positive(batch_size=self.batch_size)
        if self.batch_size != AUTO and self.batch_size % self.accumulate:
            raise ValueError(f"accumulate must divide batch_size, {self.batch_size}, got {self.accumulate}")
        require_seed(self.seed)
        require_within("ema", self.ema, 0, 0.999999)
        for size in self.sizes:
            require_positive(sizes=size)
        require_within("norm_momentum", self.norm_momentum, 0, 1)

    @property
    def decided_batch_size(self) -> int:
        """Images per step as a number; a RecipeError while it is ``auto``."""
        if self.batch_size == AUTO:
            raise RecipeError("train.batch_size: auto is decided when a run begins; give a number here")
        return self.batch_size

    @property
    def decided_epochs(self) -> int | None:
        """Epochs as a number, None for none; a RecipeError while they are ``auto``."""
        if self.epochs == AUTO:
            raise RecipeError("train.epochs: auto is decided when a run begins; give a number here")
        return self.epochs


@dataclass(frozen=True)
class Evaluate:
    """Validation and test.

    Args:
        every: epochs between two validations.
        batch_size: images at a time.
        views: views of each image whose activations are averaged: none (the image alone), flip (and its mirror image),
            shift (and the image moved by a pixel to either side along the diagonal, each at a quarter of the weight),
            or flip-shift (these three and their mirror images).
        settle: training batches from which batch norm's statistics are computed anew before an evaluation; 0 keeps the
            running ones, which at the paper's momentum of 0.99 need some 500 steps.
    """

    every: int = 1
    batch_size: int = 256
    views: Literal["none", "flip", "shift", "flip-shift"] = "none"
    settle: int = 20

    def __post_init__(self) -> None:
        require_positive(every=self.every, batch_size=self.batch_size)
        require_not_negative(settle=self.settle)


@dataclass(frozen=True)
class Run:
    """Device, threads and checkpoints: nothing that changes the result, so a run may be resumed with other values.

    Args:
        device: device to compute on, cpu, cuda, mps, or auto for the first of cuda, mps and cpu that is available.
        threads: number of CPU threads, or auto (also 0): as many as there are cores that no other process uses, and in
            a resume as many as before. A resume with the same number is exact to the bit.
        checkpoint_every: steps between two checkpoints; there is one after every validation too.
        keep: number of newest checkpoints that are kept, besides the best one.
        tensorboard: whether TensorBoard events are written too (needs the extra paircaps[tensorboard]).
        timeout: seconds that one of several processes waits for the others in a step, a validation or a checkpoint
            before all stop; to start, and to load images, they have ten minutes.
    """

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: int | Literal["auto"] = "auto"
    checkpoint_every: int = 500
    keep: int = 2
    tensorboard: bool = False
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.threads != "auto":
            require_whole(threads=self.threads)
            require_within("threads", self.threads, 0, 512)
        require_positive(checkpoint_every=self.checkpoint_every)
        require_within("keep", self.keep, 2, 1000)  # a second one in case the newest is damaged
        require_within("timeout", self.timeout, 1, 86_400)

    @property
    def chooses_threads(self) -> bool:
        """Whether the number of threads is chosen by the machine's free cores."""
        return self.threads in ("auto", 0)


@dataclass(frozen=True)
class Recipe:
    """Recipe of a training: all its sections.

    :func:`paircaps.training.recipes.load_recipe` reads one from TOML; in Python it is put together of its sections:

    >>> recipe = Recipe(data=Data("glyphs", limit=1000), train=Train(epochs=5))
    >>> recipe.model.name, recipe.model.routing
    ('resnet-caps-small', 'fm')

    Args:
        model: network to train.
        data: images for training, validation and test.
        augment: random augmentation of the training images.
        loss: training objective, a :class:`paircaps.losses.Loss`.
        optimiser: optimiser.
        schedule: schedule of the learning rate.
        train: length, batch size and precision of the training; one epoch by default.
        evaluate: validation and test.
        run: device, threads and checkpoints.
    """

    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    augment: Augment = field(default_factory=Augment)
    loss: Loss = field(default_factory=Loss)
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)
    train: Train = field(default_factory=lambda: Train(epochs=1))
    evaluate: Evaluate = field(default_factory=Evaluate)
    run: Run = field(default_factory=Run)
