"""Tables 4 and 5: images above their reconstructions by a trained network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paircaps._utils.figures import as_png, new_figure
from paircaps.data import ImageDataset
from paircaps.errors import PaircapsError
from paircaps.explain.plots.panels import INK, show
from paircaps.explain.reconstruct import reconstruct
from paircaps.model_files import load
from paircaps.network import Network, most_active
from paircaps.paper.records import Cell
from paircaps.paper.report.document import Picture
from paircaps.training.datasets import open_dataset, tested_name, tested_options
from paircaps.training.recipe import Data, Recipe

CHOSEN_FROM = 500
"""Number of test images, the first ones, that those of a sheet are chosen from."""

_RIGHT, _WRONG, _ABSENT, _SHOWN = 4, 2, 2, 5
_PNG = b"\x89PNG\r\n"
_RED, _PALE = "crimson", "#777777"


def reconstruction_sheet(cell: Cell, kind: str, folder: Path) -> Picture | str:
    """Picture with the reconstructions of a table, or a sentence on why there is none.

    If the weights or the images are gone and a picture that was drawn earlier is still there, that one is returned.

    Args:
        cell: results of the network, whose first seed draws.
        kind: ``redrawn`` (Table 4) or ``apart`` (Table 5).
        folder: folder of the report's pictures.
    """
    draw, title = _SHEETS[kind]
    name = f"{title}-{cell.data}"
    if not cell.records:
        return f"No pictures: {cell.variant.title} was not run ({cell.reason})."
    record = cell.records[0]
    caption = f"{_CAPTIONS[kind]} {cell.variant.title}, seed {record.seed}, on {_shown(record.recipe.data)}."
    try:
        return Picture(name, draw(load(record.folder), record.recipe), caption)
    except PaircapsError as error:
        kept = folder / f"{name}.png"
        if kept.is_file() and kept.read_bytes().startswith(_PNG):
            return Picture(
                name, kept.read_bytes(), f"{caption} Drawn earlier: its weights or its images are not here now."
            )
        return f"No pictures: {error}"


def _shown(settings: Data) -> str:
    """Names of the datasets whose images are shown."""
    return " and ".join(dict.fromkeys((settings.name, tested_name(settings))))


def draw_single_digits(network: Network, recipe: Recipe) -> bytes:
    """Draw Table 4: digits as in training and as in the test, above their reconstructions.

    Args:
        network: trained network with a decoder.
        recipe: its recipe.

    Returns:
        The picture as PNG.
    """
    settings = recipe.data
    halves = [
        (settings.name, _test_images(settings, settings.name, settings.options)),
        (tested_name(settings), _test_images(settings, tested_name(settings), tested_options(settings))),
    ]
    figure = new_figure(10.6, 3.1)
    for half, (name, dataset) in zip(figure.subfigures(1, 2), halves, strict=True):
        _draw_half(half, name, dataset, network)
    return as_png(figure)


def _test_images(settings: Data, name: str, options: dict[str, object]) -> ImageDataset:
    """Test split of a dataset; a report never downloads anything."""
    return open_dataset(name, "test", settings.folder, {**options, "download": False})


def _draw_half(figure: Any, name: str, dataset: ImageDataset, network: Network) -> None:
    """Draw the first image of every second class, and below it its reconstruction from the most active capsule."""
    batch = dataset.batch(range(min(CHOSEN_FROM, len(dataset))))
    first = [int((batch.labels == label).nonzero()[0]) for label in batch.labels.unique()][::2][:_SHOWN]
    reconstruction = reconstruct(network, batch.images[first])
    axes = figure.subplots(2, len(first), squeeze=False)
    figure.suptitle(name, fontsize=10)
    for column, index in enumerate(first):
        label, predicted = int(batch.labels[index]), int(reconstruction.label[column, 0])
        show(axes[0, column], reconstruction.images[column])
        show(axes[1, column], reconstruction.drawings[column, 0])
        colour = INK if predicted == label else _RED
        text = f"as {network.classes[predicted]}" + ("" if predicted == label else f", is {network.classes[label]}")
        axes[1, column].set_xlabel(text, fontsize=8, color=colour, labelpad=3)
    axes[0, 0].set_ylabel("Input", fontsize=9)
    axes[1, 0].set_ylabel("Output", fontsize=9)


def draw_overlapping_digits(network: Network, recipe: Recipe) -> bytes:
    """Draw Table 5: overlapping digits, each reconstructed in its colour; found, not found, and with an absent digit.

    Args:
        network: trained network with a decoder.
        recipe: its recipe.

    Returns:
        The picture as PNG.
    """
    settings = recipe.data
    dataset = _test_images(settings, tested_name(settings), tested_options(settings))
    batch = dataset.batch(range(min(CHOSEN_FROM, len(dataset))))
    labels = batch.targets
    with torch.no_grad(), network.evaluating():
        guesses = most_active(network(batch.images).activation, 2)
    columns, right = choose_columns(labels, guesses, len(network.classes))
    return _draw_overlapping_sheet(network, batch.images, labels, guesses, columns, f"{right} of {len(labels)} right")


Columns = list[tuple[str, int, Tensor]]
"""Columns of a sheet, each with its kind (``right``, ``wrong`` or ``absent``), the image's index, and the two digits to
draw."""


def choose_columns(labels: Tensor, guesses: Tensor, classes: int) -> tuple[Columns, int]:
    """Choose images to show and the digits to draw of each.

    Args:
        labels: the two digits of each image, (B, 2).
        guesses: the two digits that the network found, (B, 2).
        classes: number of classes.

    Returns:
        The columns of the sheet, and the number of images whose digits were both found.
    """
    found = (guesses.sort(-1).values == labels.sort(-1).values).all(-1)
    right, wrong = found.nonzero().flatten().tolist(), (~found).nonzero().flatten().tolist()
    columns = [("right", index, labels[index]) for index in right[:_RIGHT]]
    columns += [("wrong", index, guesses[index]) for index in wrong[:_WRONG]]
    columns += [
        ("absent", index, _with_absent(labels[index], guesses[index], classes)) for index in (right or wrong)[-_ABSENT:]
    ]
    return columns, len(right)


def _with_absent(labels: Tensor, guesses: Tensor, classes: int) -> Tensor:
    """The first digit of an image, and one that is neither in the image nor was found in it."""
    there = {int(value) for value in (*labels, *guesses)}
    absent = next(label for label in range(classes) if label not in there)
    return torch.stack([labels[0], torch.tensor(absent)])


def _draw_overlapping_sheet(
    network: Network,
    images: Tensor,
    labels: Tensor,
    guesses: Tensor,
    columns: Columns,
    counted: str,
) -> bytes:
    """Draw the columns of Table 5: the image above, its two digits in colours below."""
    index = [place for _, place, _ in columns]
    reconstruction = reconstruct(network, images[index], torch.stack([drawn for _, _, drawn in columns]))
    figure = new_figure(0.7 + 1.25 * len(columns), 3.8)
    axes = figure.subplots(2, len(columns), squeeze=False)
    drawings = reconstruction.in_colours()
    for place, (kind, image, drawn) in enumerate(columns):
        show(axes[0, place], reconstruction.images[place])
        show(axes[1, place], drawings[place])
        told = [f"{'*' if kind == 'absent' else ''}R:{_pair(drawn)}", f"L:{_pair(labels[image])}"]
        told.append(f"P:{_pair(guesses[image])}")
        axes[0, place].set_title("\n".join(told), fontsize=8, color=_RED if kind == "wrong" else INK)
        axes[1, place].set_xlabel(kind, fontsize=8, color=_RED if kind == "wrong" else _PALE, labelpad=3)
    axes[0, 0].set_ylabel("Input", fontsize=9)
    axes[1, 0].set_ylabel("Output", fontsize=9)
    figure.suptitle(f"Of the first {len(images)} test images: {counted}", fontsize=9)
    return as_png(figure)


def _pair(labels: Tensor) -> str:
    return f"({', '.join(str(int(label)) for label in labels)})"


_CAPTIONS = {
    "redrawn": "Table 4 of the paper: the input above, below it what is drawn from the pose of the most active "
    "capsule; red where that is the wrong one.",
    "apart": "The input above; below it what is drawn from two poses, the first in orange, the second in blue. "
    "R: the digits drawn; L: those that are there; P: those found. Wrong ones are drawn as they were found; "
    "* is drawn with a digit that is neither there nor found.",
}
_SHEETS: dict[str, tuple[Callable[[Network, Recipe], bytes], str]] = {
    "redrawn": (draw_single_digits, "table4"),
    "apart": (draw_overlapping_digits, "table5"),
}
