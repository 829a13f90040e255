"""Run ``paircaps explain``: draw what happens inside a trained network."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from paircaps._utils.files import write_whole
from paircaps.cli.datasets import named_or_own, say_other_fitting
from paircaps.cli.names import VIEWS
from paircaps.data import DataError
from paircaps.errors import PaircapsError
from paircaps.explain import agreement, dimension_ranges, perturb, reconstruct, tree
from paircaps.explain.plots import (
    draw_agreement,
    draw_perturbation,
    draw_reconstruction,
    draw_tree,
)
from paircaps.explain.sample_images import balanced_indices, load_sample_images
from paircaps.explain.trace import has_capsules, routing_without_evidence
from paircaps.model_files import load
from paircaps.network import Network
from paircaps.pictures import find_pictures
from paircaps.training.datasets import require_shape

_MOST_PICTURES = 500
"""Most pictures of one command."""
_IMAGES_PER_SHEET = {"reconstruct": 50, "agreement": 8}
"""Most images on one sheet of each view."""


@dataclass(frozen=True)
class Pictures:
    """Images to explain.

    Args:
        names: their names, for captions.
        images: (B, C, H, W) in uint8.
        label: index of the class to explain; None for the most active one of each image.
    """

    names: list[str]
    images: Tensor
    label: int | None


def run_explain(options: argparse.Namespace) -> int:
    """Draw every view of some pictures that the network allows."""
    network = load(options.folder)
    views = _views(network, options.only)
    label = _label(network, options.label)
    pictures, bad = _pictures(network, options, label)
    _make_folder(options.out)
    draw: dict[str, Callable[[], PictureFiles]] = {
        "reconstruct": lambda: _reconstruct(network, pictures),
        "perturb": lambda: _perturb(network, pictures, options.folder),
        "agreement": lambda: _agreement(network, pictures),
        "tree": lambda: _tree(network, pictures),
    }
    for view in views:
        for name, content in draw[view]():
            write_whole(options.out / name, content)
            print(options.out / name, flush=True)
    return 1 if bad else 0


def _views(network: Network, asked: list[str] | None) -> list[str]:
    """Views that can be drawn of a network; another one is an error if ``--only`` named it, else a note."""
    why = {}
    if network.decoder is None:
        why |= dict.fromkeys(("reconstruct", "perturb"), "the network was trained without a decoder")
    if not has_capsules(network):
        why |= dict.fromkeys(("agreement", "tree"), f"{network.spec.model} has no capsules, so no agreement")
    elif silent := routing_without_evidence(network):
        why |= dict.fromkeys(("agreement", "tree"), f"{silent} does not say what children contributed")
    for view in asked or []:
        if view in why:
            raise PaircapsError(f"{view} cannot be drawn: {why[view]}")
    views = [view for view in VIEWS if view in (asked or VIEWS) and view not in why]
    if not views:
        raise PaircapsError(f"nothing can be drawn: {'; '.join(dict.fromkeys(why.values()))}")
    if asked:
        return views
    for reason in dict.fromkeys(why.values()):
        left_out = " and ".join(view for view in VIEWS if why.get(view) == reason)
        print(f"paircaps: note: no {left_out}: {reason}", file=sys.stderr)
    return views


def _label(network: Network, name: str | None) -> int | None:
    if name is None:
        return None
    if name not in network.classes:
        raise PaircapsError(f"--class {name}: the network knows {', '.join(network.classes)}")
    return network.classes.index(name)


def _pictures(network: Network, options: argparse.Namespace, label: int | None) -> tuple[Pictures, int]:
    """The pictures of the command line, or images of a dataset; and the number of those that could not be read."""
    if options.files and options.data:
        raise PaircapsError(f"give pictures or --data {options.data}, not both")
    if options.files:
        return _files(network, options, label)
    dataset = named_or_own(network, options.folder, options, options.split)
    require_shape(network, dataset)
    chosen = balanced_indices(dataset, options.count)
    batch = dataset.batch(chosen)
    labels = batch.targets
    shown = [" + ".join(dataset.classes[of] for of in every) for every in labels.reshape(len(chosen), -1).tolist()]
    names = [f"{text}, no. {number}" for text, number in zip(shown, chosen, strict=True)]
    return Pictures(names, batch.images, label), 0


def _files(network: Network, options: argparse.Namespace, label: int | None) -> tuple[Pictures, int]:
    """Pictures of files, and the number of unreadable ones; an error only if none could be read."""
    say_other_fitting(network, options)
    names, images, errors = [], [], []
    for number, source in enumerate(find_pictures(options.files)):
        if number == _MOST_PICTURES:
            raise PaircapsError(f"more than {_MOST_PICTURES} pictures are too many for one command: name fewer")
        try:
            images.append(network.read_picture(source, fit=options.fit, invert=options.invert).image)
        except DataError as error:
            errors.append(str(error))
            continue
        names.append(Path(source.name).name)
    if not images:
        raise PaircapsError("; ".join(errors))
    for error in errors:
        print(f"paircaps: {error}", file=sys.stderr)
    return Pictures(names, torch.stack(images), label), len(errors)


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise PaircapsError(f"{out}: is a file; -o takes a folder")
    out.mkdir(parents=True, exist_ok=True)


PictureFiles = Iterator[tuple[str, bytes]]
"""Names of files and their content, drawn one at a time."""


def _reconstruct(network: Network, pictures: Pictures) -> PictureFiles:
    for name, few in _sheets("reconstruct", pictures, _IMAGES_PER_SHEET["reconstruct"]):
        reconstruction = reconstruct(network, few.images, few.label)
        yield name, draw_reconstruction(reconstruction, few.names, network.classes)


def _perturb(network: Network, pictures: Pictures, folder: Path) -> PictureFiles:
    samples = load_sample_images(network, folder)
    if not samples.own:
        print(
            "paircaps: note: the run's own images are not here: "
            f"poses are swept as far as those of {samples.source} go",
            file=sys.stderr,
        )
    ranges = dimension_ranges(network, samples.images)
    for name, one in _sheets("perturb", pictures, 1):
        perturbation = perturb(network, one.images, ranges, one.label)
        yield name, draw_perturbation(perturbation, 0, one.names[0], network.classes[int(perturbation.label[0])])


def _agreement(network: Network, pictures: Pictures) -> PictureFiles:
    for name, few in _sheets("agreement", pictures, _IMAGES_PER_SHEET["agreement"]):
        explained = agreement(network, few.images, few.label)
        yield name, draw_agreement(explained, few.names, network.classes)


def _tree(network: Network, pictures: Pictures) -> PictureFiles:
    for name, one in _sheets("tree", pictures, 1):
        parsed = tree(network, one.images[0], one.label)
        yield name, draw_tree(parsed, one.names[0], network.classes[parsed.label])


def _sheets(view: str, pictures: Pictures, each: int) -> Iterator[tuple[str, Pictures]]:
    """Split pictures into sheets, each with a file name; numbered, unless one sheet takes them all."""
    count = len(pictures.names)
    sheets = -(-count // each)
    for sheet in range(sheets):
        few = slice(sheet * each, (sheet + 1) * each)
        number = f"-{sheet + 1:0{len(str(sheets))}}" if sheets > 1 or each == 1 else ""
        yield f"{view}{number}.png", Pictures(pictures.names[few], pictures.images[few], pictures.label)
