"""Sample images for a trained network: from its own dataset if that is on this machine, else glyphs.

Pose dimensions are measured on them, and they are shown where no other images are given.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps.data import ImageDataset, load_dataset
from paircaps.data.randomness import permutation
from paircaps.data.registry import offline_options
from paircaps.errors import PaircapsError
from paircaps.explain.warps import UprightImages, upright_images
from paircaps.network import Network
from paircaps.training.datasets import own_dataset, require_shape, tested_name
from paircaps.training.run_folder import RunFolder

COUNT = 1024
"""Images unless another number is given."""


@dataclass(frozen=True)
class SampleImages:
    """Images and the dataset they are from.

    Args:
        images: (N, C, H, W) in uint8.
        source: name of their dataset.
        own: whether it is the dataset that the run was tested on.
    """

    images: Tensor
    source: str
    own: bool


def load_sample_images(network: Network, folder: Path, count: int = COUNT, root: Path | None = None) -> SampleImages:
    """Load images of a run's own test set if that is on this machine, else glyphs.

    Nothing is downloaded.

    Args:
        network: a trained network, for the size and channels of the images.
        folder: where its run is.
        count: number of images, chosen at random; fewer if the dataset has fewer.
        root: folder that is searched first for datasets; that of the recipe by default.
    """
    dataset = _own_dataset(network, folder, root)
    if dataset is None:
        return SampleImages(_glyphs(network, count), "glyphs", own=False)
    # the purpose "familiar" is part of the random seed: another word would choose other images
    images = dataset.batch(permutation(0, 0, len(dataset), "familiar")[:count]).images
    return SampleImages(images, dataset.info.name, own=True)


def load_upright_images(network: Network, folder: Path, count: int = COUNT) -> UprightImages | None:
    """Load images to warp into known poses, of the same dataset; None if there are none of its classes.

    Args:
        network: a trained network, for the size and channels of the images, and for its classes.
        folder: where its run is.
        count: most images.
    """
    own = _own_dataset(network, folder)
    dataset = load_dataset("glyphs", "test") if own is None else own
    if dataset.classes != network.classes:
        return None
    try:
        base = upright_images(dataset, most=count)
    except (PaircapsError, OSError):  # a damaged picture among them
        return None
    if own is not None:
        return base
    return UprightImages(
        base.images.expand(-1, network.model.in_channels, -1, -1), base.labels, network.spec.preparation.size
    )


def _own_dataset(network: Network, folder: Path, root: Path | None = None) -> ImageDataset | None:
    """The dataset that a run was tested on; None if it is not on this machine or its images do not fit."""
    try:
        dataset = own_dataset(folder, root=root, options=_offline(folder))
        require_shape(network, dataset)
    except (PaircapsError, OSError):
        return None
    return dataset


def _offline(folder: Path) -> dict[str, object]:
    """Option that forbids the download of a published dataset; a folder of pictures does not take it."""
    run = RunFolder(folder)
    return offline_options(tested_name(run.read_recipe().data)) if run.has_recipe() else {}


def _glyphs(network: Network, count: int) -> Tensor:
    """Glyphs in the network's image size and channels, (N, C, H, W) in uint8."""
    images = load_dataset("glyphs", "test").batch(torch.arange(count)).images
    size = network.spec.preparation.size
    resized = F.interpolate(images.float(), size, mode="bilinear", antialias=True).round().to(torch.uint8)
    return resized.expand(-1, network.model.in_channels, -1, -1)


def balanced_indices(dataset: ImageDataset, count: int, classes: Collection[int] | None = None) -> list[int]:
    """Indices of images with the classes in turn: the first image of each class, then the second, and so on.

    Of an image with two labels, the first one counts.

    Args:
        dataset: where to take them.
        count: number of images; fewer if there are fewer.
        classes: indices of the classes to take; None for all.
    """
    labels = dataset.labels.cpu()
    turn = torch.empty(len(labels), dtype=torch.long)  # number of images of the same class before each image
    for label in range(len(dataset.classes)):
        own = labels == label
        turn[own] = torch.arange(int(own.sum()))
    order = (turn * len(dataset.classes) + labels).argsort(stable=True)
    if classes is not None:
        order = order[torch.isin(labels[order], torch.tensor(sorted(classes)))]
    return order[:count].tolist()
