"""Run ``paircaps equivariance``: measure how well poses follow transformations of the image, for each network."""

from __future__ import annotations

import argparse
import sys

from paircaps._utils.machine import machine_line
from paircaps._utils.words import visible
from paircaps.cli.datasets import named_or_own
from paircaps.cli.output import require_places, show_result
from paircaps.data import ImageDataset
from paircaps.errors import PaircapsError
from paircaps.explain import measure_equivariance, upright_images
from paircaps.explain.equivariance import as_markdown
from paircaps.explain.plots import draw_equivariance
from paircaps.model_files import find_models, load
from paircaps.network import Network
from paircaps.training.datasets import require_classes, require_shape


def run_equivariance(options: argparse.Namespace) -> int:
    """Measure poses and activations of warped images, for each network, and print the table."""
    require_places(options.out, picture=True)
    networks, tested = {}, {}
    for name, folder in find_models(options.folders).items():
        network = load(folder)
        data = [named_or_own(network, folder, options, split) for split in ("train", "test")]
        for dataset in data:
            require_shape(network, dataset)
            require_classes(network, dataset)
        networks[name], tested[name] = (network, *map(upright_images, data)), data[1]
    if len(set(map(_described, tested.values()))) > 1:
        own = "; ".join(f"{name}: {_described(dataset)}" for name, dataset in tested.items())
        raise PaircapsError(f"networks of different datasets cannot be compared ({own}): give --data NAME")
    measured = []
    for name, (network, fit_on, test_on) in networks.items():
        print(f"warping images for {visible(name)} ...", file=sys.stderr, flush=True)
        _warn_of_few(network, options.images)
        measured.append(measure_equivariance(name, network, fit_on, test_on, options.images, options.seed).as_dict())
    result = {
        "networks": measured,
        "data": {"name": next(iter(tested.values())).info.name, "fit": "train split", "test": "test split"},
        "images": options.images,
        "seed": options.seed,
        "machine": machine_line(),
    }
    return show_result(result, as_markdown, options, draw_equivariance)


def _warn_of_few(network: Network, images: int) -> None:
    """Warn of too few images: a read-out with as many weights as images fits anything."""
    wanted = 4 * len(network.classes) * (network.model.pose_dim + 1)
    if images < wanted:
        print(
            f"paircaps: note: {images:,} images are few for {len(network.classes)} read-outs of "
            f"{network.model.pose_dim} numbers each, so R² will come out too low; {wanted:,} would do",
            file=sys.stderr,
        )


def _described(dataset: ImageDataset) -> str:
    """Name, length and image size of a dataset, by which two datasets are told apart."""
    channels, height, width = dataset.shape
    return f"{dataset.info.name}, {len(dataset):,} images of {height}×{width}×{channels}"
