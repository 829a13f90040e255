"""Run ``paircaps explain``: draw what happens inside a trained network."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from paircaps._utils.words import visible
from paircaps.cli.datasets import named_or_own, say_other_fitting
from paircaps.cli.names import VIEWS
from paircaps.cli.picture_output import PictureOutput, choose_output
from paircaps.data import DataError, ImageDataset
from paircaps.errors import PaircapsError
from paircaps.explain import DimensionRanges, agreement, dimension_ranges, find_masks, perturb, reconstruct, tree
from paircaps.explain.kept_poses import kept_poses
from paircaps.explain.plots import (
    draw_agreement,
    draw_masks,
    draw_perturbation,
    draw_reconstruction,
    draw_tree,
)
from paircaps.explain.plots.perturb import MOST_ROWS
from paircaps.explain.sample_images import balanced_indices, load_sample_images
from paircaps.explain.trace import has_trace, routing_without_evidence, why_no_trace
from paircaps.losses import target_masks
from paircaps.model_files import load
from paircaps.network import Network
from paircaps.pictures import find_pictures
from paircaps.training.datasets import require_shape

_MOST_PICTURES = 500
"""Most pictures of one command."""
_COUNT = 8
"""Images of a dataset unless another number is given."""
_IMAGES_PER_SHEET = {"reconstruct": 20, "perturb": 1, "agreement": 8, "tree": 1, "masks": 8}
"""Most images on one sheet of each view."""


@dataclass(frozen=True)
class Pictures:
    """Images to explain.

    Args:
        names: their names, for captions.
        images: (B, C, H, W) in uint8.
        label: index of the class to explain; None for the most active one of each image.
        true_masks: masks of all classes, (B, J, H, W) of 0 and 1; None where they are not known.
    """

    names: list[str]
    images: Tensor
    label: int | None
    true_masks: Tensor | None = None

    def part(self, few: slice) -> Pictures:
        """Some of the pictures."""
        masks = None if self.true_masks is None else self.true_masks[few]
        return Pictures(self.names[few], self.images[few], self.label, masks)


def run_explain(options: argparse.Namespace) -> int:
    """Draw every view of some pictures that the network allows."""
    # everything that can be wrong is refused before anything is drawn
    output = choose_output(options.out, options.format, options.width)
    network = load(options.folder)
    views = _views(network, options.only)
    label = _label(network, options.label)
    pictures, bad = _pictures(network, options, label, one=output.is_file and _one_image_each(views))
    if output.is_file:
        _require_one_sheet(output.path, views, len(pictures.names))
    dimensions = _dimensions(network, options.dimensions, views)
    draw: dict[str, Callable[[], PictureFiles]] = {
        "reconstruct": lambda: _reconstruct(network, pictures, output),
        "perturb": lambda: _perturb(network, pictures, output, options.folder, dimensions),
        "agreement": lambda: _agreement(network, pictures, output),
        "tree": lambda: _tree(network, pictures, output),
        "masks": lambda: _masks(network, pictures, output),
    }
    output.prepare()
    for view in views:
        for name, content in draw[view]():
            print(visible(str(output.write(name, content))), flush=True)
    return 1 if bad else 0


def _views(network: Network, asked: list[str] | None) -> list[str]:
    """Views that can be drawn of a network; another one is an error if ``--only`` named it, else a note."""
    why = {}
    if network.decoder is None:
        why |= dict.fromkeys(("reconstruct", "perturb"), "the network was trained without a decoder")
    if not network.has_masks:
        why["masks"] = f"{network.spec.model} gives no masks"
    if not has_trace(network):
        why |= dict.fromkeys(("agreement", "tree"), why_no_trace(network))
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


def _one_image_each(views: Sequence[str]) -> bool:
    """Whether there is one view alone, and its pictures are of one image each."""
    return len(views) == 1 and _IMAGES_PER_SHEET[views[0]] == 1


def _require_one_sheet(path: Path, views: Sequence[str], count: int) -> None:
    """Refuse to write several pictures to one file."""
    sheets = {view: -(-count // _IMAGES_PER_SHEET[view]) for view in views}
    if sum(sheets.values()) == 1:
        return
    found = " and ".join(f"{number} of {view}" for view, number in sheets.items())
    ways = [f"name a folder: -o {path.with_suffix('')}"]
    if len(views) > 1:
        ways.append(f"choose one kind: --only {views[-1]}")
    elif sum(sheets.values()) > 1:
        ways.append("take fewer images (--count 1, or one picture)")
    many = sum(sheets.values())
    raise PaircapsError(f"-o {path}: one file cannot take {many} pictures, {found}; {', or '.join(ways)}")


def _dimensions(network: Network, numbers: list[int] | None, views: Sequence[str]) -> list[int] | None:
    """Pose dimensions to show, counted from 0; ``--dimensions`` counts from 1, as the pictures do."""
    if numbers is None:
        return None
    if "perturb" not in views:
        raise PaircapsError("--dimensions chooses rows of perturb, which is not drawn here")
    if len(numbers) > MOST_ROWS:
        raise PaircapsError(f"--dimensions: one picture has room for {MOST_ROWS} of them, got {len(numbers)}")
    most = network.model.pose_dim
    for number in numbers:
        if number > most:
            raise PaircapsError(f"--dimensions {number}: a pose of this network has the dimensions 1 to {most}")
    return [number - 1 for number in numbers]


def _pictures(network: Network, options: argparse.Namespace, label: int | None, one: bool) -> tuple[Pictures, int]:
    """The pictures of the command line, or images of a dataset; and the number of those that could not be read.

    Args:
        network: the trained network.
        options: those of the command.
        label: index of the class to explain, or None.
        one: whether one image of a dataset is enough where no number is given.
    """
    if options.files and options.data:
        raise PaircapsError(f"give pictures or --data {options.data}, not both")
    if options.files and options.classes:
        raise PaircapsError("--classes chooses images of a dataset; which class of a picture to explain, --class says")
    if options.files:
        return _files(network, options, label)
    dataset = named_or_own(network, options.folder, options, options.split)
    require_shape(network, dataset)
    classes = None if options.classes is None else [_class_of(dataset, name) for name in options.classes]
    chosen = balanced_indices(dataset, options.count or (1 if one else _COUNT), classes)
    if not chosen:
        asked = f"--classes {','.join(options.classes)}: " if options.classes else ""
        raise PaircapsError(f"{asked}{dataset!r} has no such images")
    batch = dataset.batch(chosen)
    labels = batch.targets.reshape(len(chosen), -1).tolist()
    names = [image_title(dataset, of, number) for of, number in zip(labels, chosen, strict=True)]
    masks = None
    if network.has_masks and batch.mask_source is not None and dataset.classes == network.classes:
        masks = target_masks(batch.targets, batch.mask_source, len(network.classes))
    return Pictures(names, batch.images, label, masks), 0


def _class_of(dataset: ImageDataset, name: str) -> int:
    """Index of a class that ``--classes`` names."""
    if name not in dataset.classes:
        raise PaircapsError(f"--classes {name}: the dataset has {', '.join(dataset.classes)}")
    return dataset.classes.index(name)


def image_title(dataset: ImageDataset, labels: Sequence[int], number: int) -> str:
    """Title of an image for people: "digit 0, test image 12".

    Args:
        dataset: where the image is from.
        labels: its classes.
        number: its index in the dataset.
    """
    names = [dataset.classes[label] for label in labels]
    word = ""
    if all(name.isdecimal() for name in dataset.classes):
        word = "digit" if max(map(len, dataset.classes)) == 1 else "class"
        word += ("es " if word == "class" else "s ") if len(names) > 1 else " "
    split = {"train": "training"}.get(dataset.info.split, dataset.info.split)
    return f"{word}{' and '.join(names)}, {split} image {dataset.original_index(number)}"


def _files(network: Network, options: argparse.Namespace, label: int | None) -> tuple[Pictures, int]:
    """Pictures of files, and the number of unreadable ones; an error only if none could be read."""
    say_other_fitting(network, options)
    names, images, errors = [], [], []
    if options.out.is_file() and any(Path(file).is_file() and options.out.samefile(file) for file in options.files):
        raise PaircapsError(f"-o {options.out}: is the picture to explain, which would be overwritten")
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
        print(f"paircaps: {visible(error)}", file=sys.stderr)
    return Pictures(names, torch.stack(images), label), len(errors)


PictureFiles = Iterator[tuple[str, bytes]]
"""Names of files without their endings, and the content of each, drawn one at a time."""


def _reconstruct(network: Network, pictures: Pictures, output: PictureOutput) -> PictureFiles:
    for name, few in _sheets("reconstruct", pictures):
        reconstruction = reconstruct(network, few.images, few.label)
        yield (
            name,
            draw_reconstruction(reconstruction, few.names, network.classes, format=output.format, width=output.width),
        )


def _perturb(
    network: Network, pictures: Pictures, output: PictureOutput, folder: Path, dimensions: list[int] | None
) -> PictureFiles:
    ranges = _ranges(network, folder)
    for name, one in _sheets("perturb", pictures):
        perturbation = perturb(network, one.images, ranges, one.label)
        class_name = network.classes[int(perturbation.label[0])]
        yield (
            name,
            draw_perturbation(
                perturbation,
                0,
                one.names[0],
                class_name,
                dimensions=dimensions,
                format=output.format,
                width=output.width,
            ),
        )


def _ranges(network: Network, folder: Path) -> DimensionRanges:
    """Usual ranges of the pose dimensions: those kept with the network, else measured on images."""
    kept = kept_poses(network, folder)
    if kept is not None:
        return kept.ranges
    samples = load_sample_images(network, folder)
    if not samples.own:
        print(
            "paircaps: note: the run's own images are not here: "
            f"poses are swept as far as those of {visible(samples.source)} go",
            file=sys.stderr,
        )
    return dimension_ranges(network, samples.images)


def _agreement(network: Network, pictures: Pictures, output: PictureOutput) -> PictureFiles:
    for name, few in _sheets("agreement", pictures):
        explained = agreement(network, few.images, few.label)
        yield (
            name,
            draw_agreement(explained, few.names, network.classes, format=output.format, width=output.width),
        )


def _tree(network: Network, pictures: Pictures, output: PictureOutput) -> PictureFiles:
    for name, one in _sheets("tree", pictures):
        parsed = tree(network, one.images[0], one.label)
        class_name = network.classes[parsed.label]
        yield name, draw_tree(parsed, one.names[0], class_name, format=output.format, width=output.width)


def _masks(network: Network, pictures: Pictures, output: PictureOutput) -> PictureFiles:
    for name, few in _sheets("masks", pictures):
        label = None if few.label is None else torch.full((len(few.names), 1), few.label)
        found = find_masks(network, few.images, few.true_masks, label)
        yield name, draw_masks(found, few.names, network.classes, format=output.format, width=output.width)


def _sheets(view: str, pictures: Pictures) -> Iterator[tuple[str, Pictures]]:
    """Split pictures into sheets, each with a file name; numbered, unless one sheet takes them all."""
    count, each = len(pictures.names), _IMAGES_PER_SHEET[view]
    sheets = -(-count // each)
    for sheet in range(sheets):
        few = slice(sheet * each, (sheet + 1) * each)
        number = f"-{sheet + 1:0{len(str(sheets))}}" if sheets > 1 or each == 1 else ""
        yield f"{view}{number}", pictures.part(few)
