"""The parts of a training, built from a recipe: device, memory format, loader, network and loss."""

from __future__ import annotations

from dataclasses import replace

import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from paircaps.data import Augmentation, ImageDataset, Loader
from paircaps.errors import RecipeError
from paircaps.layers.norms import set_norm_momentum
from paircaps.losses import Objective
from paircaps.model_files import contiguous
from paircaps.models import ImageModel
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.training.datasets import Datasets, augmentation, require_masks
from paircaps.training.distributed import Processes
from paircaps.training.recipe import Recipe, Run, options_of
from paircaps.training.schedule import images_per_step, steps_per_epoch

FITTED_IMAGES = 5000
"""Number of training images from which a network computes what it does not learn by steps."""

_LEAST_CHANNELS = 16
"""Fewest input channels of a strided 1×1 convolution for channels_last: with fewer, torch 2.13 writes past the end of
its memory on CPUs, with 8 and 12 of them where threads are 3, 5, 6 or 7 (LOG.md)."""


def choose_device(run: Run) -> torch.device:
    """The device of a run; ``auto`` is the fastest one of this machine.

    Args:
        run: section ``run`` of the recipe.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    names = [name for name, is_available in available.items() if is_available]
    name = names[0] if run.device == "auto" else run.device
    if name not in names:
        raise RecipeError(f"run.device: this machine has no {name}, only {', '.join(names)}")
    return torch.device(name)


def memory_format(recipe: Recipe, module: nn.Module) -> torch.memory_format:
    """Memory format of images and kernels: channels last if the recipe says so and PyTorch can do it safely.

    Args:
        recipe: the recipe.
        module: network that will be trained.
    """
    unsafe = any(
        isinstance(part, nn.Conv2d)
        and part.kernel_size == (1, 1)
        and part.stride != (1, 1)
        and part.in_channels < _LEAST_CHANNELS
        for part in module.modules()
    )
    return torch.channels_last if recipe.train.channels_last and not unsafe else torch.contiguous_format


def build_objective(recipe: Recipe, datasets: Datasets, device: torch.device) -> Objective:
    """Network and loss of a recipe, on a device; the first weights depend on ``train.seed`` alone.

    Args:
        recipe: the recipe.
        datasets: its images, which decide size, channels and classes.
        device: where the network is put.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.train.seed)
            network = Network(network_spec(recipe, datasets.train))
    except (TypeError, ValueError) as error:
        raise RecipeError(f"model: {error}") from None
    _require_masks_fit(recipe, network, datasets.train)
    try:
        objective = Objective(network, recipe.loss)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"loss: {error}") from None
    network.spec = replace(network.spec, certainty=objective.certainty)
    set_norm_momentum(network, recipe.train.norm_momentum)
    return objective.to(device, memory_format=memory_format(recipe, network))  # pyright: ignore[reportCallIssue]


def _require_masks_fit(recipe: Recipe, network: Network, dataset: ImageDataset) -> None:
    """Raise an error if a network with masks is trained without them, or on images that another network is for."""
    require_masks(network, dataset)
    if not network.has_masks:
        return
    if augmentation(recipe.augment) is not None:
        raise RecipeError("augment: a segmentation network learns masks, which would not be augmented with the images")
    if recipe.train.sizes:
        raise RecipeError(
            "train.sizes: a segmentation network learns masks, which would not be resized with the images"
        )


def fit_network(network: Network, images: ImageDataset, processes: Processes) -> None:
    """Compute what a network takes from training images before its first step, such as a whitening stem.

    Rank 0 computes it from the first images of the dataset, and all processes get its result.

    Args:
        network: network before its first step.
        images: training images.
        processes: all processes of the training.
    """
    if type(network.model).fit is ImageModel.fit:
        return  # nothing to fit
    if processes.first:
        network.fit(images.batch(range(min(len(images), FITTED_IMAGES))).images)
    if processes.world_size > 1:
        shared = processes.share(tensors_to_bytes(contiguous(network.state_dict())) if processes.first else None)
        network.load_state_dict(tensors_from_bytes(shared))


def network_spec(recipe: Recipe, dataset: ImageDataset) -> NetworkSpec:
    """Specification of the network of a recipe for the images of a dataset.

    Whether images are standardised (``data.standardise``) is decided here, once: the preparation is part of the
    network, which applies it in training, evaluation and prediction alike.

    Args:
        recipe: the recipe.
        dataset: images that the network takes.
    """
    channels, height, width = dataset.shape
    side = recipe.augment.crop_size
    crop = (height, width) if side is None else (side, side)
    arguments: dict[str, object] = {
        "num_classes": len(dataset.classes),
        "in_channels": channels,
        "image_size": crop,
        "routing": recipe.model.routing,
        **options_of(recipe.model.options),
    }
    if recipe.model.routing_options:
        arguments["routing_options"] = options_of(recipe.model.routing_options)
    try:
        preparation = Preparation((height, width), crop, recipe.data.standardise, channels, dataset.info.fitting)
    except ValueError as error:
        raise RecipeError(f"augment.crop_size: {error}") from None
    labels = dataset.labels_per_image
    return NetworkSpec(recipe.model.name, arguments, dataset.classes, preparation, recipe.loss.decoder, labels)


def training_loader(recipe: Recipe, datasets: Datasets, processes: Processes) -> Loader:
    """Loader of the training images, with :func:`steps_per_epoch` batches per epoch.

    Raises:
        RecipeError: if the batch size or the augmentation does not fit the images or the processes.
    """
    steps = augmentation(recipe.augment)
    if steps is not None and datasets.train.image_extras and recipe.loss.decoder != "none":
        raise RecipeError("augment: these images are drawn beside their originals, which would not be augmented")
    if steps is not None:
        _require_fitting_steps(steps, datasets.train)
    size = recipe.train.decided_batch_size
    if size % processes.world_size:
        raise RecipeError(f"train.batch_size: {size} images cannot be shared by {processes.world_size} processes")
    images = len(datasets.train)
    return Loader(
        datasets.train,
        size,
        steps,
        recipe.train.seed,
        drop_last=steps_per_epoch(images, size) * size <= images,  # all batches are full, or there is only one
        rank=processes.rank,
        world_size=processes.world_size,
    )


def _require_fitting_steps(steps: Augmentation, dataset: ImageDataset) -> None:
    """Raise an error if the augmentation does not fit the images: it is applied to one of them."""
    try:
        steps.apply(dataset.batch([0]).images, torch.full((1, steps.draws), 0.5, dtype=torch.float64))
    except ValueError as error:
        raise RecipeError(f"augment: {error}") from None


def require_trainable(recipe: Recipe, objective: Objective, datasets: Datasets, processes: Processes) -> None:
    """Raise an error for what PyTorch would only say in a step: too few images for batch norm, sizes that do not fit.

    Args:
        recipe: for batch size and accumulation.
        objective: network and loss.
        datasets: images of the training.
        processes: all processes of the training.
    """
    _require_sizes_fit(recipe, objective.network)
    if not any(isinstance(part, _BatchNorm) for part in objective.modules()):
        return
    batch_size = recipe.train.decided_batch_size
    images = images_per_step(len(datasets.train), batch_size)
    accumulate = recipe.train.accumulate
    share = images // processes.world_size // accumulate  # images of one process at a time
    together = share if not recipe.train.sync_norm else images // accumulate
    if together < 2 or (processes.world_size > 1 and share < 1):
        raise RecipeError(
            f"batch norm needs two images at a time: {len(datasets.train)} images to train on, train.batch_size "
            f"{batch_size}, train.accumulate {recipe.train.accumulate}, {processes.world_size} processes"
        )


def _require_sizes_fit(recipe: Recipe, network: Network) -> None:
    """Raise an error if the network cannot be trained on images of the sizes of the recipe."""
    sizes, model = recipe.train.sizes, network.model
    if not sizes:
        return
    if not model.takes_any_size:
        raise RecipeError(
            f"train.sizes: {recipe.model.name} takes images of {model.image_size[0]}×{model.image_size[1]} only; "
            'pooling networks and fast-caps with model.options.votes = "shared" take any size'
        )
    if network.decoder is not None:
        raise RecipeError("train.sizes: a decoder draws images of one size, so it cannot be trained on several")
    if model.image_size != (sizes[-1], sizes[-1]):
        own = f"{model.image_size[0]}×{model.image_size[1]}"
        raise RecipeError(f"train.sizes: the last one must be the network's own, {own}, got {sizes[-1]}")
    if not model.minimum_size <= min(sizes) <= max(sizes) == sizes[-1]:
        raise RecipeError(
            f"train.sizes: must lie between {model.minimum_size}, the smallest that {recipe.model.name} can take, and "
            f"{sizes[-1]}, got {list(sizes)}"
        )
