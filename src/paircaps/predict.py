"""Classify picture files of any format and size with a trained network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from paircaps.data import DataError, decode_picture
from paircaps.data.errors import os_data_error
from paircaps.data.pictures import SUFFIXES, Fit, read_bytes
from paircaps.network import Network, most_active

STANDARD_INPUT = "-"
_AT_ONCE = 64


@dataclass(frozen=True)
class Prediction:
    """Prediction of a network for one picture.

    Args:
        name: name of the picture's file.
        labels: name of the most active class, or of the two most active ones if the network was trained for two; empty
            if the picture could not be read.
        activations: activation of each class capsule by class name; None if the picture could not be read.
        error: why the picture could not be read; empty if it could.
    """

    name: str
    labels: tuple[str, ...] = ()
    activations: dict[str, float] | None = None
    error: str = ""


@dataclass(frozen=True)
class PictureSource:
    """Name of a picture, and a function that reads its bytes."""

    name: str
    read: Callable[[], bytes]


def find_pictures(places: Iterable[str]) -> Iterator[PictureSource]:
    """Find pictures: files, all pictures in folders and their subfolders, and standard input (``-``).

    A file that does not exist gives a source too, which raises a DataError when it is read.
    """
    for place in places:
        path = Path(place).expanduser()
        if place == STANDARD_INPUT:
            yield PictureSource("standard input", _read_standard_input)
        elif path.is_dir():
            yield from _in_folder(path)
        else:
            yield PictureSource(str(path), lambda path=path: read_bytes(path))


def _in_folder(folder: Path) -> Iterator[PictureSource]:
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not found:
        yield PictureSource(str(folder), lambda: _refuse(f"{folder}: no picture in this folder"))
    for path in found:
        yield PictureSource(str(path), lambda path=path: read_bytes(path))


def _refuse(reason: str) -> bytes:
    raise DataError(reason)


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        raise DataError("standard input: closed")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise os_data_error("read", "standard input", error) from None


def predict_pictures(
    network: Network, sources: Iterable[PictureSource], *, fit: Fit = "pad", invert: bool = False
) -> Iterator[Prediction]:
    """Classify pictures; one that cannot be read gives a prediction with an error, and the others go on.

    Args:
        network: trained network.
        sources: pictures to classify.
        fit: how a picture of another aspect is fitted: pad, crop or stretch.
        invert: exchange dark and light, for dark digits on light paper.
    """
    sources = iter(sources)
    while group := list(islice(sources, _AT_ONCE)):
        pictures = {number: _decode(network, source, fit, invert) for number, source in enumerate(group)}
        good = {number: picture for number, picture in pictures.items() if isinstance(picture, Tensor)}
        activations = dict(zip(good, _activations(network, list(good.values())), strict=True))
        for number, source in enumerate(group):
            picture = pictures[number]
            if isinstance(picture, str):
                yield Prediction(source.name, error=picture)
            else:
                yield _prediction(source.name, activations[number], network)


def _decode(network: Network, source: PictureSource, fit: Fit, invert: bool) -> Tensor | str:
    """Picture as the network takes it, or the reason why it could not be read."""
    try:
        return read_picture(network, source, fit=fit, invert=invert)
    except DataError as error:
        return str(error)


def read_picture(
    network: Network, source: PictureSource, *, fit: Fit = "pad", invert: bool = False, max_memory: int | None = None
) -> Tensor:
    """Read a picture as the network takes it, (C, H, W) in uint8.

    Args:
        network: network whose image size and channels the picture gets.
        source: picture to read.
        fit: how a picture of another aspect is fitted: pad, crop or stretch.
        invert: exchange dark and light.
        max_memory: most bytes that decoding may take; no bound without it.
    """
    size, channels = network.spec.preparation.size, network.model.in_channels
    background = 255 if invert else 0
    try:
        picture = decode_picture(source.read(), source.name, size, channels, fit, background, max_memory=max_memory)
    except ValueError as error:
        raise DataError(f"{source.name}: {error}") from None
    return 255 - picture if invert else picture


@torch.no_grad()
def _activations(network: Network, pictures: list[Tensor]) -> Iterator[list[float]]:
    if not pictures:
        return iter(())
    device = next(network.parameters()).device
    return iter(network(torch.stack(pictures).to(device)).activation.tolist())


def _prediction(name: str, values: list[float], network: Network) -> Prediction:
    chosen = most_active(torch.tensor([values]), network.spec.labels_per_image).flatten().tolist()
    labels = tuple(network.classes[index] for index in chosen)
    return Prediction(name, labels, dict(zip(network.classes, values, strict=True)))
