"""Synthetic datasets, drawn when they are asked for; each image is a pure function of (seed, index).

A drawing has two steps. ``plan`` chooses labels, poses and partners, which is cheap, so the labels of a million images
are known without drawing one; ``draw`` makes the images. Digits come from a stored dataset: MNIST or upright glyphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from paircaps._utils.checks import height_and_width, require_bool, require_positive, require_within
from paircaps.data.dataset import Batch, ImageDataset, Indices, Info, StoredDataset, as_index
from paircaps.data.errors import DataError
from paircaps.data.randomness import uniform
from paircaps.data.synthetic.poses import UPRIGHT, PoseRange, moved_boxes
from paircaps.data.synthetic.warp import ink_boxes, place, warp

Plan = Mapping[str, Tensor]
"""Tensors of some images by name, (B, ...) each."""

LENGTH_MOST = 100_000_000
"""Most images of a synthetic dataset; the paper's largest has six million."""

_SIDE_MOST = 1024


class DrawingRule(ABC):
    """Way to draw an image from stored digits.

    Attributes:
        draws: number of random numbers that one image needs.
        size: (height, width) of an image.
        image_extras: names of the extras that are images, with the number of images of each.
    """

    draws: int
    size: tuple[int, int]
    image_extras: ClassVar[Mapping[str, int]] = {}

    @abstractmethod
    def plan(self, base: Base, row: Tensor, noise: Tensor) -> Plan:
        """Choose labels and extras, from rows of the base (B,) and random numbers in [0, 1) (B, draws)."""

    @abstractmethod
    def draw(self, base: Base, row: Tensor, plan: Plan) -> Plan:
        """Draw the images, and extras that are images."""


class Base:
    """Stored digits that images are drawn from, with their boxes and their order by class."""

    def __init__(self, digits: StoredDataset) -> None:
        self.digits = digits
        self.images, self.labels = digits.images, digits.labels.cpu()

    @cached_property
    def boxes(self) -> Tensor:
        """Box around the ink of each digit (N, 4)."""
        return ink_boxes(self.images).cpu()

    @cached_property
    def by_class(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows in order of class (N,), first place of each class in that order, and number of digits of each class."""
        counts = torch.bincount(self.labels, minlength=len(self.digits.classes))
        return self.labels.argsort(stable=True), counts.cumsum(0) - counts, counts


class SyntheticDataset(ImageDataset):
    """Images drawn from stored digits.

    Args:
        info: name, split, classes and note.
        digits: digits to draw from.
        drawing: way to draw them.
        length: number of images; image i is drawn from digit i modulo the number of digits.
        seed: seed of all images.
        fresh: draw other images in every epoch.
    """

    def __init__(
        self, info: Info, digits: StoredDataset, drawing: DrawingRule, length: int, seed: int = 0, fresh: bool = False
    ) -> None:
        require_positive(length=length)
        require_within("length", length, 1, LENGTH_MOST)
        require_bool(fresh=fresh)
        self.info, self.drawing, self.base, self.seed, self.fresh = info, drawing, Base(digits), seed, fresh
        self.shape, self.image_extras = (digits.shape[0], *drawing.size), drawing.image_extras
        self._length = length
        self.annotations(torch.arange(1))  # raises now, not in the first batch, if the seed or the digits are bad

    def __len__(self) -> int:
        return self._length

    @property
    def changes_by_epoch(self) -> bool:
        """True if other images are drawn in every epoch."""
        return self.fresh

    def annotations(self, index: Indices, epoch: int = 0) -> Plan:
        """Labels and extras of an index (B,) by name, without drawing an image."""
        index = as_index(index, len(self))
        purpose = f"making {self.info.split}"  # part of the hash that random numbers come from: never rename it
        noise = uniform(self.seed, epoch if self.fresh else 0, index, self.drawing.draws, purpose)
        return self.drawing.plan(self.base, index % len(self.base.labels), noise)

    def batch(self, index: Indices, epoch: int = 0) -> Batch:
        """Images in uint8, labels and extras of an index (B,), on the device of the digits."""
        index = as_index(index, len(self))
        plan = dict(self.annotations(index, epoch))
        drawings = dict(self.drawing.draw(self.base, index % len(self.base.labels), plan))
        images = drawings.pop("images")
        annotations = {name: value.to(images.device) for name, value in plan.items()} | drawings
        return Batch(images, annotations.pop("labels"), index, annotations)

    def to(self, device: torch.device | str) -> SyntheticDataset:
        """Copy of the dataset that draws on a device."""
        digits = self.base.digits.to(device)
        return SyntheticDataset(self.info, digits, self.drawing, len(self), self.seed, self.fresh)


@dataclass(frozen=True)
class TranslatedDigits(DrawingRule):
    """Digit at a random place on a larger canvas, moved by whole pixels; extras: ``pose``."""

    size: tuple[int, int]
    draws: int = 2

    def plan(self, base: Base, row: Tensor, noise: Tensor) -> Plan:
        """Choose corners anywhere inside the canvas."""
        room = _room(base, self.size)
        corner = (noise * (room + 1)).floor()
        return {"labels": base.labels[row], "pose": _shift_pose(corner - room / 2)}

    def draw(self, base: Base, row: Tensor, plan: Plan) -> Plan:
        """Draw digits at their corners."""
        return {"images": _placed(base, row, plan["pose"], self.size)}


@dataclass(frozen=True)
class AffineDigits(DrawingRule):
    """Digit turned, scaled and sheared, then put anywhere its ink still fits; extras: ``pose``.

    Args:
        size: (height, width) of the canvas.
        ranges: ranges of rotation, scale and shear.
    """

    size: tuple[int, int]
    ranges: PoseRange
    draws: int = 5

    def plan(self, base: Base, row: Tensor, noise: Tensor) -> Plan:
        """Choose poses; a digit too large for the canvas is put in its middle."""
        turned = self.ranges.draw(noise[:, 2:])
        box = moved_boxes(base.boxes[row], torch.cat([torch.zeros_like(noise[:, :2]), turned], -1))
        half = torch.tensor([self.size[1] / 2, self.size[0] / 2], dtype=torch.float64)
        least, most = -half - box[:, :2], half - box[:, 2:]
        free = (most - least).clamp(min=0)
        shift = (least + most - free) / 2 + noise[:, :2] * free
        return {"labels": base.labels[row], "pose": torch.cat([shift, turned], -1).float()}

    def draw(self, base: Base, row: Tensor, plan: Plan) -> Plan:
        """Draw digits in their poses."""
        return {"images": warp(_rows(base.images, row), plan["pose"], self.size)}


@dataclass(frozen=True)
class OverlappingDigits(DrawingRule):
    """Two digits of different classes over each other, summed and clipped.

    Extras: ``second_label``; ``pose`` (B, 2, 5); ``originals`` (B, 2, C, H, W), each digit alone where it lies.

    Args:
        size: (height, width) of the canvas, in whose middle both digits begin.
        shift: most pixels that each digit is moved by, to either side and up or down.
    """

    size: tuple[int, int]
    shift: int = 4
    draws: int = 5
    image_extras: ClassVar[Mapping[str, int]] = {"originals": 2}

    def plan(self, base: Base, row: Tensor, noise: Tensor) -> Plan:
        """Choose the second digit and the shifts of both."""
        partner = _partner(base, row, noise[:, 4])
        shift = (noise[:, :4] * (2 * self.shift + 1)).floor() - self.shift
        room = _room(base, self.size)
        if self.shift > int(room.min()) // 2:
            raise ValueError(
                f"shift must be at most {int(room.min()) // 2}, that digits stay on a canvas of "
                f"{self.size[0]}×{self.size[1]}, got {self.shift}"
            )
        off_middle = (room / 2).floor() - room / 2  # of an odd room, half a pixel
        pose = torch.stack([_shift_pose(shift[:, :2] + off_middle), _shift_pose(shift[:, 2:] + off_middle)], 1)
        return {
            "labels": base.labels[row],
            "second_label": base.labels[partner],
            "pose": pose,
            "partner": partner,
        }

    def draw(self, base: Base, row: Tensor, plan: Plan) -> Plan:
        """Draw both digits, apart and together."""
        first = _placed(base, row, plan["pose"][:, 0], self.size)
        second = _placed(base, plan["partner"], plan["pose"][:, 1], self.size)
        sum_clipped = first + second.clamp(max=255 - first)  # in bytes, without overflow
        return {"images": sum_clipped, "originals": torch.stack([first, second], 1)}


def canvas(image_size: object, base: ImageDataset) -> tuple[int, int]:
    """(height, width) of a canvas, checked: digits of the base must fit on it."""
    size = height_and_width("image_size", image_size)
    if size[0] < base.shape[1] or size[1] < base.shape[2]:
        raise DataError(
            f"image_size must be at least {base.shape[1]}×{base.shape[2]}, that of {base.info.name}'s images, "
            f"got {size[0]}×{size[1]}"
        )
    require_within("image_size", max(size), 1, _SIDE_MOST)
    return size


def _room(base: Base, size: tuple[int, int]) -> Tensor:
    """Pixels (across, down) by which a canvas is larger than a digit."""
    height, width = base.images.shape[-2:]
    return torch.tensor([size[1] - width, size[0] - height], dtype=torch.float64)


def _shift_pose(shift: Tensor) -> Tensor:
    """Poses (B, 5) of shifts (B, 2) from the middle."""
    upright = torch.tensor(UPRIGHT[2:], dtype=shift.dtype).expand(len(shift), -1)
    return torch.cat([shift, upright], -1).float()


def _placed(base: Base, row: Tensor, pose: Tensor, size: tuple[int, int]) -> Tensor:
    """Digits on a canvas, shifted by their poses, which count half pixels where the room is odd."""
    corner = (pose[:, :2] + _room(base, size) / 2).round().long()
    return place(_rows(base.images, row), corner[:, 1], corner[:, 0], size)


def _rows(images: Tensor, row: Tensor) -> Tensor:
    return images.index_select(0, row.to(images.device))


def _partner(base: Base, row: Tensor, noise: Tensor) -> Tensor:
    """Rows of digits of another class, all equally likely: rows in order of class, without the digit's own class."""
    order, begins, counts = base.by_class
    own = base.labels[row]
    others = len(order) - counts[own]
    if not bool((others > 0).all()):
        raise DataError(f"{base.digits.info.name}: two digits of different classes need two classes")
    place_among_others = (noise * others).long()
    return order[place_among_others + (place_among_others >= begins[own]) * counts[own]]
