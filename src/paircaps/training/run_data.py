"""Images for a network that is trained already: those of its own run, or others that it can look at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paircaps.data import ImageDataset
from paircaps.data.named import load_named
from paircaps.errors import PaircapsError
from paircaps.network import Network
from paircaps.training.datasets import tested_name, tested_options
from paircaps.training.recipe import options_of
from paircaps.training.run_folder import RunFolder


def own_dataset(
    folder: Path, split: str = "test", root: Path | None = None, options: Mapping[str, object] | None = None
) -> ImageDataset:
    """The dataset that a training tested on, as it was loaded then.

    Args:
        folder: of the run.
        split: of the dataset.
        root: a folder to look in first.
        options: of the dataset, over those of the run.
    """
    run = RunFolder(folder)
    if not run.config.exists():
        raise PaircapsError(f"{folder}: has no {run.config.name} to tell the dataset by: give --data NAME")
    settings = run.read_recipe().data
    if root is None and settings.folder:
        root = Path(settings.folder).expanduser()
    own = options_of(tested_options(settings))
    dataset = load_named(tested_name(settings), split, root, {**own, **(options or {})})
    return dataset.limit(settings.limit, settings.seed)


def require_shape(network: Network, dataset: ImageDataset) -> None:
    """Refuse images of another size or with other channels than the network takes."""
    channels, height, width = dataset.shape
    wanted = network.spec.preparation
    if channels != network.model.in_channels or (height, width) not in (wanted.size, wanted.crop):
        size = "×".join(map(str, (*wanted.size, network.model.in_channels)))
        sides = wanted.size[0] if wanted.size[0] == wanted.size[1] else f"'{wanted.size}'"
        advice = [f"--option image_size={sides}"] if (height, width) != wanted.size else []
        advice += [f"--option channels={network.model.in_channels}"] if channels != network.model.in_channels else []
        raise PaircapsError(
            f"{dataset!r}: its images are of another shape than the network's, {size}; a dataset that can be made or "
            f"read so takes {' '.join(advice)}"
        )


def require_classes(network: Network, dataset: ImageDataset) -> None:
    """Refuse images of other classes than the network knows."""
    if dataset.classes != network.classes:
        raise PaircapsError(
            f"{dataset!r}: its classes are {', '.join(dataset.classes)}; the network knows {', '.join(network.classes)}"
        )


def require_fitting(network: Network, dataset: ImageDataset) -> None:
    """Refuse a dataset that the network cannot be tested on."""
    require_shape(network, dataset)
    if dataset.labels_per_image != network.spec.labels_per_image:
        raise PaircapsError(
            f"{dataset!r}: its images have {dataset.labels_per_image} labels each, the network was trained for "
            f"{network.spec.labels_per_image}"
        )
    require_classes(network, dataset)
