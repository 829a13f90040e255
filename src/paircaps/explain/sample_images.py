"""Images of the kind that a network knows, to see how far its poses reach, or to look at for want of others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps.data import ImageDataset, load_dataset
from paircaps.data.metadata import METADATA
from paircaps.data.randomness import permutation
from paircaps.errors import PaircapsError
from paircaps.network import Network
from paircaps.training.datasets import own_dataset, require_shape, tested_name
from paircaps.training.run_folder import RunFolder

COUNT = 1024


@dataclass(frozen=True)
class Familiar:
    """Images, and where they are from.

    Args:
        images: (N, C, H, W) in bytes.
        source: name of their dataset.
        own: whether it is that of the run.
    """

    images: Tensor
    source: str
    own: bool


def familiar_images(network: Network, folder: Path, count: int = COUNT) -> Familiar:
    """Images of a run's own test set if that is on this machine, else glyphs in many poses.

    Nothing is downloaded.

    Args:
        network: that will look at them.
        folder: of its run.
        count: at most so many, chosen at random.
    """
    try:
        dataset = own_dataset(folder, options=_offline(folder))
        require_shape(network, dataset)
    except (PaircapsError, OSError):
        return Familiar(_glyphs(network, count), "glyphs", own=False)
    images = dataset.batch(permutation(0, 0, len(dataset), "familiar")[:count]).images
    return Familiar(images, dataset.info.name, own=True)


def _offline(folder: Path) -> dict[str, object]:
    """The option that keeps a published dataset from being downloaded; a folder of pictures has no such thing."""
    config = RunFolder(folder).config
    known = config.exists() and tested_name(RunFolder(folder).read_recipe().data) in METADATA
    return {"download": False} if known else {}


def _glyphs(network: Network, count: int) -> Tensor:
    """Glyphs of the network's own size and channels."""
    images = load_dataset("glyphs", "test").batch(torch.arange(count)).images
    size = network.spec.preparation.size
    resized = F.interpolate(images.float(), size, mode="bilinear", antialias=True).round().to(torch.uint8)
    return resized.expand(-1, network.model.in_channels, -1, -1)


def some_of_each(dataset: ImageDataset, count: int) -> list[int]:
    """Indices of a few images, of as many classes as can be: the first of each class, then the second, and so on."""
    labels = dataset.labels.cpu()
    turn = torch.empty(len(labels), dtype=torch.long)  # how many of its class came before each image
    for label in range(len(dataset.classes)):
        own = labels == label
        turn[own] = torch.arange(int(own.sum()))
    order = (turn * len(dataset.classes) + labels).argsort(stable=True)
    return order[:count].tolist()
