"""``paircaps equivariance``: how well poses follow the world, network by network."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from paircaps._utils.machine import machine_line
from paircaps.cli.arguments import add_dataset_option, data_folder, named_or_own, path, whole_number
from paircaps.cli.output import add_output, require_places, show_result
from paircaps.data import ImageDataset
from paircaps.errors import PaircapsError
from paircaps.explain import measure, upright
from paircaps.explain.equivariance import IMAGES
from paircaps.explain.plots import draw_equivariance
from paircaps.explain.report import as_markdown
from paircaps.model_files import find_models, load
from paircaps.network import Network
from paircaps.training.datasets import require_classes, require_shape


def add_commands(commands: Any) -> None:
    """Declare ``equivariance``."""
    follow = commands.add_parser(
        "equivariance", parents=[data_folder()], help="measure how well poses follow the world, network by network"
    )
    follow.add_argument(
        "folders", nargs="+", type=path, metavar="DIR", help="the --out of a training, or a folder of several"
    )
    follow.add_argument("--data", metavar="NAME", help="images to warp: a dataset, or a folder of pictures")
    help_text = "warped images to fit the read-out on, and as many to test it on (%(default)s)"
    follow.add_argument("--images", type=whole_number(100, 1_000_000), default=IMAGES, help=help_text)
    follow.add_argument("--seed", type=whole_number(0), default=0, help="of the warps")
    add_dataset_option(follow)
    add_output(follow, run_equivariance, picture=True)


def run_equivariance(options: argparse.Namespace) -> int:
    """Warp images, and see what becomes of poses and activations."""
    require_places(options.out, picture=True)
    networks, tested = {}, {}
    for name, folder in find_models(options.folders).items():
        network = load(folder)
        data = [named_or_own(folder, options, split) for split in ("train", "test")]
        for dataset in data:
            require_shape(network, dataset)
            require_classes(network, dataset)
        networks[name], tested[name] = (network, *map(upright, data)), data[1]
    if len(set(map(_described, tested.values()))) > 1:
        own = "; ".join(f"{name}: {_described(dataset)}" for name, dataset in tested.items())
        raise PaircapsError(f"networks of different datasets cannot be compared ({own}): give --data NAME")
    measured = []
    for name, (network, fit_on, test_on) in networks.items():
        print(f"warping images for {name} ...", file=sys.stderr, flush=True)
        _warn_of_few(network, options.images)
        measured.append(measure(name, network, fit_on, test_on, options.images, options.seed).as_dict())
    result = {
        "networks": measured,
        "data": {"name": next(iter(tested.values())).info.name, "fit": "train split", "test": "test split"},
        "images": options.images,
        "seed": options.seed,
        "machine": machine_line(),
    }
    return show_result(result, as_markdown, options, draw_equivariance)


def _warn_of_few(network: Network, images: int) -> None:
    """A read-out with as many weights as images fits anything."""
    wanted = 4 * len(network.classes) * (network.model.pose_dim + 1)
    if images < wanted:
        print(
            f"paircaps: note: {images:,} images are few for {len(network.classes)} read-outs of "
            f"{network.model.pose_dim} numbers each, so R² will come out too low; {wanted:,} would do",
            file=sys.stderr,
        )


def _described(dataset: ImageDataset) -> str:
    """By what two datasets are told apart."""
    channels, height, width = dataset.shape
    return f"{dataset.info.name}, {len(dataset):,} images of {height}×{width}×{channels}"
