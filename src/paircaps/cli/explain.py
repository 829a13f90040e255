"""``paircaps explain`` and ``paircaps equivariance``: what goes on inside a trained network."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paircaps._files import write_whole
from paircaps.cli.arguments import add_dataset_option, data_folder, path, whole_number
from paircaps.cli.output import add_output, require_places, show_result
from paircaps.data import DataError, ImageDataset
from paircaps.data.named import load_named
from paircaps.data.pictures import FITS
from paircaps.errors import PaircapsError
from paircaps.explain import agreement, measure, perturb, pose_range, reconstruct, tree, upright
from paircaps.explain.drawn import (
    draw_agreement,
    draw_equivariance,
    draw_perturbation,
    draw_reconstruction,
    draw_tree,
)
from paircaps.explain.equivariance import IMAGES
from paircaps.explain.familiar import familiar_images, some_of_each
from paircaps.explain.look import has_capsules
from paircaps.explain.report import as_markdown
from paircaps.machine import machine_line
from paircaps.model_files import find_models, load
from paircaps.network import Network
from paircaps.predict import find_pictures, read_picture
from paircaps.training.datasets import targets
from paircaps.training.run_data import own_dataset, require_classes, require_shape

VIEWS = ("reconstruct", "perturb", "agreement", "tree")
_COUNT = 8


def add_commands(commands: Any) -> None:
    """Declare ``explain`` and ``equivariance``."""
    inside = commands.add_parser("explain", parents=[data_folder()], help="draw what goes on inside a network")
    inside.add_argument("folder", type=path, metavar="DIR", help="the --out of a training")
    help_text = "pictures, folders of them, or - for standard input; a few of the run's own test images unless told"
    inside.add_argument("files", nargs="*", metavar="FILE", help=help_text)
    inside.add_argument("-o", "--out", type=path, required=True, metavar="OUT", help="a folder for the pictures")
    inside.add_argument(
        "--only", action="append", choices=VIEWS, help="draw only this; may be given several times (all that can be)"
    )
    inside.add_argument("--class", dest="label", metavar="NAME", help="look at this class, not at the most active one")
    inside.add_argument("--data", metavar="NAME", help="take images of this dataset, or folder of pictures")
    inside.add_argument("--split", default="test", help="test unless told")
    inside.add_argument("--count", type=whole_number(1, 100), default=_COUNT, help="images of a dataset (%(default)s)")
    inside.add_argument("--fit", choices=FITS, default="pad", help="how a picture of another aspect is fitted")
    inside.add_argument("--invert", action="store_true", help="exchange dark and light: dark digits on light paper")
    add_dataset_option(inside)
    inside.set_defaults(run=run_explain)

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


@dataclass(frozen=True)
class Pictures:
    """What is looked at.

    Args:
        names: for captions.
        images: (B, C, H, W) in bytes.
        label: the class that was asked for, or None.
    """

    names: list[str]
    images: Tensor
    label: int | None


def run_explain(options: argparse.Namespace) -> int:
    """Draw every view that there is of some pictures."""
    network = load(options.folder)
    views = _views(network, options.only)
    label = _label(network, options.label)
    pictures, bad = _pictures(network, options, label)
    _make_folder(options.out)
    draw: dict[str, Callable[[], dict[str, bytes]]] = {
        "reconstruct": lambda: _reconstruct(network, pictures),
        "perturb": lambda: _perturb(network, pictures, options.folder),
        "agreement": lambda: _agreement(network, pictures),
        "tree": lambda: _tree(network, pictures),
    }
    for view in views:
        for name, content in draw[view]().items():
            write_whole(options.out / name, content)
            print(options.out / name, flush=True)
    return 1 if bad else 0


def _views(network: Network, asked: list[str] | None) -> list[str]:
    """What can be drawn of a network; what cannot be is an error if it was asked for, else a note."""
    why = {}
    if network.decoder is None:
        why |= dict.fromkeys(("reconstruct", "perturb"), "the network was trained without a decoder")
    if not has_capsules(network):
        why |= dict.fromkeys(("agreement", "tree"), f"{network.spec.model} has no capsules, so no agreement")
    for view in asked or VIEWS:
        if view in why and asked:
            raise PaircapsError(f"{view} cannot be drawn: {why[view]}")
    views = [view for view in VIEWS if view in (asked or VIEWS) and view not in why]
    if not views:
        raise PaircapsError(f"nothing can be drawn: {'; '.join(dict.fromkeys(why.values()))}")
    for reason in dict.fromkeys(why.values()):
        left_out = " and ".join(view for view in VIEWS if why.get(view) == reason)
        if not asked:
            print(f"paircaps: note: no {left_out}: {reason}", file=sys.stderr)
    return views


def _label(network: Network, name: str | None) -> int | None:
    if name is None:
        return None
    if name not in network.classes:
        raise PaircapsError(f"--class {name}: the network knows {', '.join(network.classes)}")
    return network.classes.index(name)


def _pictures(network: Network, options: argparse.Namespace, label: int | None) -> tuple[Pictures, int]:
    """The files that were named, or images of a dataset; and how many could not be read."""
    if options.files and options.data:
        raise PaircapsError(f"give pictures or --data {options.data}, not both")
    if options.files:
        return _files(network, options, label)
    dataset = _dataset(options.folder, options, options.split)
    require_shape(network, dataset)
    chosen = some_of_each(dataset, options.count)
    batch = dataset.batch(chosen)
    labels, _ = targets(batch)
    shown = [" + ".join(dataset.classes[of] for of in every) for every in labels.reshape(len(chosen), -1).tolist()]
    names = [f"{text}, no. {number}" for text, number in zip(shown, chosen, strict=True)]
    return Pictures(names, batch.images, label), 0


def _files(network: Network, options: argparse.Namespace, label: int | None) -> tuple[Pictures, int]:
    """Pictures of files; one that cannot be read does not stop the others, unless there are none."""
    names, images, errors = [], [], []
    for source in find_pictures(options.files):
        try:
            images.append(read_picture(network, source, fit=options.fit, invert=options.invert))
        except DataError as error:
            errors.append(str(error))
            continue
        names.append(Path(source.name).name)
    if not images:
        raise PaircapsError("; ".join(errors))
    for error in errors:
        print(f"paircaps: {error}", file=sys.stderr)
    return Pictures(names, torch.stack(images), label), len(errors)


def _dataset(folder: Path, options: argparse.Namespace, split: str) -> ImageDataset:
    given = dict(options.option)
    if options.data is not None:
        return load_named(options.data, split, options.data_dir, given)
    return own_dataset(folder, split, options.data_dir, given)


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise PaircapsError(f"{out}: is a file; -o takes a folder")
    out.mkdir(parents=True, exist_ok=True)


def _reconstruct(network: Network, pictures: Pictures) -> dict[str, bytes]:
    seen = reconstruct(network, pictures.images, pictures.label)
    return {"reconstruct.png": draw_reconstruction(seen, pictures.names, network.classes)}


def _perturb(network: Network, pictures: Pictures, folder: Path) -> dict[str, bytes]:
    reach = pose_range(network, familiar_images(network, folder))
    drawn = {}
    for number, name in enumerate(_file_names("perturb", pictures.names)):
        seen = perturb(network, pictures.images[number : number + 1], reach, pictures.label)
        class_name = network.classes[int(seen.label[0])]
        drawn[name] = draw_perturbation(seen, 0, pictures.names[number], class_name)
    return drawn


def _agreement(network: Network, pictures: Pictures) -> dict[str, bytes]:
    seen = agreement(network, pictures.images, pictures.label)
    return {"agreement.png": draw_agreement(seen, pictures.names, network.classes)}


def _tree(network: Network, pictures: Pictures) -> dict[str, bytes]:
    drawn = {}
    for number, name in enumerate(_file_names("tree", pictures.names)):
        seen = tree(network, pictures.images[number], pictures.label)
        drawn[name] = draw_tree(seen, pictures.names[number], network.classes[seen.label])
    return drawn


def _file_names(view: str, names: list[str]) -> list[str]:
    """One file an image, numbered: names of pictures may be alike, or be no names of files."""
    digits = len(str(len(names)))
    return [f"{view}-{number:0{digits}}.png" for number in range(1, len(names) + 1)]


def run_equivariance(options: argparse.Namespace) -> int:
    """Warp images, and see what becomes of poses and activations."""
    require_places(options.out, picture=True)
    networks, names = {}, {}
    for name, folder in find_models(options.folders).items():
        network = load(folder)
        data = [_dataset(folder, options, split) for split in ("train", "test")]
        for dataset in data:
            require_shape(network, dataset)
            require_classes(network, dataset)
        networks[name], names[name] = (network, *map(upright, data)), data[1].info.name
    if len(set(names.values())) > 1:
        own = ", ".join(f"{name} {dataset}" for name, dataset in names.items())
        raise PaircapsError(f"networks of different datasets cannot be compared ({own}): give --data NAME")
    measured = []
    for name, (network, fit_on, test_on) in networks.items():
        print(f"warping images for {name} ...", file=sys.stderr, flush=True)
        _warn_of_few(network, options.images)
        measured.append(measure(name, network, fit_on, test_on, options.images, options.seed).as_dict())
    result = {
        "networks": measured,
        "data": {"name": next(iter(names.values())), "fit": "train split", "test": "test split"},
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
