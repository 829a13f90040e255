"""Ranges of poses that ``model.json`` keeps, for trained networks whose images are not on every machine.

``paircaps weights add`` measures them on the run's own test images; the page and ``paircaps explain`` read them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paircaps.errors import ModelFileError
from paircaps.explain.dimensions import Dimension, measure_dimensions
from paircaps.explain.perturb import DimensionRanges, dimension_ranges
from paircaps.explain.sample_images import load_sample_images, load_upright_images
from paircaps.model_files import read_metadata
from paircaps.network import Network

SECTION = "poses"
"""Section of ``model.json``."""

_DIGITS = 5
"""Significant digits of the numbers that are kept."""

_LARGEST = 1e6


@dataclass(frozen=True)
class KeptPoses:
    """Ranges of pose dimensions, and what the dimensions stand for.

    Args:
        ranges: usual ranges of the dimensions.
        source: name of the images that they were measured on.
        dimensions: for each class its dimensions in falling order of their change; None without a decoder.
    """

    ranges: DimensionRanges
    source: str
    dimensions: list[list[Dimension]] | None

    def as_section(self) -> dict[str, object]:
        """The section of ``model.json``."""
        dimensions = None
        if self.dimensions is not None:
            dimensions = [[[d.index, _short(d.change), d.follows, _short(d.r2)] for d in of] for of in self.dimensions]
        return {
            "measured_on": self.source,
            "low": [[_short(value) for value in row] for row in self.ranges.low.tolist()],
            "high": [[_short(value) for value in row] for row in self.ranges.high.tolist()],
            "dimensions": dimensions,
        }


def measure_poses(network: Network, folder: Path, count: int) -> KeptPoses:
    """Measure ranges and dimensions on images of the run's own test set, or on glyphs if that is not here.

    Args:
        network: the trained network.
        folder: where its run is.
        count: number of images.
    """
    samples = load_sample_images(network, folder, count)
    ranges = dimension_ranges(network, samples.images)
    if network.decoder is None:
        return KeptPoses(ranges, samples.source, None)
    measurement = measure_dimensions(network, samples.images, ranges, load_upright_images(network, folder))
    while True:
        try:
            next(measurement)
        except StopIteration as done:
            return KeptPoses(ranges, samples.source, done.value)


def kept_poses(network: Network, folder: Path) -> KeptPoses | None:
    """What the ``model.json`` of a network keeps of its poses; None if it keeps nothing.

    Args:
        network: the network.
        folder: where it is.

    Raises:
        ModelFileError: if the section is damaged.
    """
    section = read_metadata(folder).get(SECTION)
    if section is None:
        return None
    classes, dimensions = network.model.num_classes, network.model.pose_dim
    try:
        ranges = DimensionRanges(*(_matrix(section[end], classes, dimensions) for end in ("low", "high")))
        kept = section["dimensions"]
        measured = None if kept is None or network.decoder is None else _dimensions(kept, classes, dimensions)
        return KeptPoses(ranges, str(section["measured_on"]), measured)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelFileError(f"{folder}: model.json: its section {SECTION!r} is damaged: {error}") from None


def _matrix(rows: Sequence[Sequence[float]], classes: int, dimensions: int) -> Tensor:
    if len(rows) != classes or any(len(row) != dimensions for row in rows):
        raise ValueError(f"ranges are not {classes} rows of {dimensions} numbers")
    return torch.tensor([[_number(value) for value in row] for row in rows])


def _dimensions(kept: Sequence[Sequence[Sequence[Any]]], classes: int, dimensions: int) -> list[list[Dimension]]:
    if len(kept) != classes:
        raise ValueError(f"dimensions of {len(kept)} classes, not of {classes}")
    measured = [[_dimension(*each) for each in of] for of in kept]
    if any(not 0 <= each.index < dimensions for of in measured for each in of):
        raise ValueError(f"a dimension is not among 0 to {dimensions - 1}")
    return measured


def _dimension(index: object, change: object, follows: object, r2: object) -> Dimension:
    if type(index) is not int or not (follows is None or isinstance(follows, str)):
        raise ValueError(f"a dimension is a place and a name, got {index!r} and {follows!r}")
    return Dimension(index, _number(change), follows, None if r2 is None else _number(r2))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    if abs(value) > _LARGEST:
        raise ValueError(f"{value!r} is larger than {_LARGEST:g}")
    return float(value)


def _short(value: float | None) -> float | None:
    """A number with as many digits as are kept."""
    return None if value is None else float(f"{value:.{_DIGITS}g}")
