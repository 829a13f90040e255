"""What every dataset is: a length, and batches of images by index.

A dataset that is stored keeps its images as one uint8 tensor, and a batch is a slice of it. One that is made on the fly
draws the images it is asked for. Users of a dataset need not know which of the two it is.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Self

import torch
from torch import Tensor

from paircaps._utils.checks import require_positive
from paircaps.data.errors import DataError
from paircaps.data.randomness import permutation

_SECOND_LABEL, _ORIGINALS = "second_label", "originals"  # names of extras, where two digits lie over each other
_CHUNK_PIXELS = 1 << 22  # drawn at a time where all images are wanted
_KEPT_MOST = 1 << 30  # bytes


Indices = Tensor | Sequence[int]


@dataclass(frozen=True, eq=False)
class Batch:
    """Some images and what is known of them.

    Args:
        images: (B, C, H, W), uint8 out of a dataset, float out of a loader.
        labels: (B,) class indices.
        index: (B,) where in the dataset each is.
        extras: more of it by name, (B, ...): ``pose``, ``second_label``, ``originals``, ``elevation``.
    """

    images: Tensor
    labels: Tensor
    index: Tensor
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def __getattr__(self, name: str) -> Tensor:
        extras = self.__dict__.get("extras", {})  # none yet while it is unpickled
        if name not in extras:
            raise _unknown(self, name, extras)
        return extras[name]

    @property
    def targets(self) -> Tensor:
        """Labels to learn: (B,), or (B, D) where an image shows D classes."""
        if _SECOND_LABEL not in self.extras:
            return self.labels
        return torch.stack([self.labels, self.extras[_SECOND_LABEL]], -1)

    @property
    def reconstruction_target(self) -> Tensor:
        """Images that a decoder should draw: those of the batch, (B, C, H, W), or each digit alone, (B, D, C, H, W)."""
        return self.extras.get(_ORIGINALS, self.images)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        extras = {name: value.to(device) for name, value in self.extras.items()}
        return Batch(self.images.to(device), self.labels.to(device), self.index.to(device), extras)


@dataclass(frozen=True)
class Info:
    """What a dataset says of itself.

    Args:
        name: as in ``load_dataset(name)``.
        split: ``"train"`` or ``"test"``.
        classes: names of the classes, in order of their labels.
        note: what a reader of results must know: that it is a stand-in, or a small part.
    """

    name: str
    split: str
    classes: tuple[str, ...]
    note: str = ""


class ImageDataset(torch.utils.data.Dataset, ABC):
    """Images with labels, by index; a torch Dataset too, so that a DataLoader takes it.

    Attributes:
        info: name, split, classes and note.
        shape: (C, H, W) of an image.
        drawn: extras that are images too, (N, M, C, H, W), and how many M each has.
    """

    info: Info
    shape: tuple[int, int, int]
    drawn: Mapping[str, int] = {}

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, index: Indices, epoch: int = 0) -> Batch:
        """The images of an index (B,), uint8; ``epoch`` matters to datasets that are drawn afresh each epoch."""

    @abstractmethod
    def facts(self, index: Indices, epoch: int = 0) -> Mapping[str, Tensor]:
        """Labels and extras of an index, without its images where that is cheaper."""

    @abstractmethod
    def to(self, device: torch.device | str) -> ImageDataset:
        """The same dataset on a device, where batches and augmentation then happen."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in order of their labels."""
        return self.info.classes

    @property
    def labels_per_image(self) -> int:
        """Classes that an image shows: 1, or 2 where two digits lie over each other."""
        return 2 if _SECOND_LABEL in self._extra_names else 1

    @property
    def images(self) -> Tensor:
        """All images, (N, C, H, W) in uint8."""
        return self._everything.images

    @property
    def labels(self) -> Tensor:
        """All class indices, (N,)."""
        return self._facts["labels"]

    @property
    def extras(self) -> Mapping[str, Tensor]:
        """What else is known of all images, by name."""
        return {name: getattr(self, name) for name in self._extra_names}

    def __getattr__(self, name: str) -> Tensor:
        private = name.startswith("_") or "info" not in self.__dict__  # no info yet while it is unpickled
        names = () if private else self._extra_names
        if name not in names:
            raise _unknown(self, name, names)
        return self._everything.extras[name] if name in self.drawn else self._facts[name]

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not isinstance(index, Integral):
            raise TypeError(f"an image has a whole number, got {index!r}; several are had by batch(...) or subset(...)")
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} of a dataset of {len(self)} images")
        batch = self.batch(torch.tensor([index % len(self)]))
        return batch.images[0], int(batch.labels[0])

    def __repr__(self) -> str:
        channels, height, width = self.shape
        note = f", {self.info.note}" if self.info.note else ""
        return (
            f"<{self.info.name} {self.info.split}: {len(self):,} images of {height}×{width}×{channels}, "
            f"{len(self.classes)} classes{note}>"
        )

    def class_counts(self) -> Tensor:
        """How many images each class has."""
        return torch.bincount(self.labels.cpu(), minlength=len(self.classes))

    def subset(self, index: Indices) -> ImageDataset:
        """These images only, in this order."""
        return Subset(self, as_index(index, len(self)))

    def limit(self, count: int | None, seed: int = 0) -> ImageDataset:
        """At most so many images, chosen at random by the seed, for a folder's images come class by class."""
        if count is None:
            return self
        require_positive(limit=count)
        if count >= len(self):
            return self
        return self.subset(permutation(seed, 0, len(self), "limit")[:count].sort().values)

    @property
    def changes(self) -> bool:
        """Whether an image is another one in another epoch."""
        return False

    def kept(self) -> ImageDataset:
        """The same images, each drawn once and then kept, if they never change and take no more than 1 GiB."""
        if self.changes or self.drawn or len(self) * math.prod(self.shape) > _KEPT_MOST:
            return self
        return StoredDataset(self.info, self.images, self.labels, self.extras)

    def chunks(self) -> tuple[Tensor, ...]:
        """All indices, as many at a time as make a batch of a few megabytes."""
        return torch.arange(len(self)).split(max(1, _CHUNK_PIXELS // math.prod(self.shape)))

    @cached_property
    def _facts(self) -> Mapping[str, Tensor]:
        return self.facts(torch.arange(len(self)))

    @cached_property
    def _everything(self) -> Batch:
        copies = 1 + sum(self.drawn.values())
        require_memory(len(self) * copies, self.shape, f"all {len(self):,} images of {self.info.name}")
        parts = [self.batch(index) for index in self.chunks()]
        extras = {name: torch.cat([part.extras[name] for part in parts]) for name in parts[0].extras}
        images, labels = torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
        return Batch(images, labels, torch.arange(len(self)), extras)

    @cached_property
    def _extra_names(self) -> tuple[str, ...]:
        """Of what else is known, found out from one image."""
        return (*(name for name in self.facts(torch.arange(1)) if name != "labels"), *self.drawn)


class StoredDataset(ImageDataset):
    """Images that are decoded once and kept.

    Args:
        info: name, split, classes, note.
        images: (N, C, H, W) in uint8.
        labels: (N,) class indices.
        extras: what else is known, (N, ...) each.
    """

    def __init__(self, info: Info, images: Tensor, labels: Tensor, extras: Mapping[str, Tensor] | None = None) -> None:
        if images.dim() != 4 or images.dtype != torch.uint8:
            raise TypeError(f"images must be (N, C, H, W) in uint8, got {tuple(images.shape)} in {images.dtype}")
        if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex():
            raise TypeError(f"labels must be (N,) class indices, got {tuple(labels.shape)} in {labels.dtype}")
        columns = {"labels": labels.long(), **(extras or {})}
        for name, column in columns.items():
            if name != "labels" and name in dir(type(self)):
                raise ValueError(f"an extra cannot be called {name!r}: a dataset has something of that name")
            if len(column) != len(images):
                raise DataError(f"{info.name} {info.split}: {len(images):,} images but {len(column):,} {name}")
        if not len(images):
            raise DataError(f"{info.name} {info.split}: no image at all")
        worst = int(columns["labels"].max()), int(columns["labels"].min())
        if worst[0] >= len(info.classes) or worst[1] < 0:
            bad = worst[1] if worst[1] < 0 else worst[0]
            raise DataError(f"{info.name} {info.split}: label {bad}, but classes are 0 to {len(info.classes) - 1}")
        self.info = info
        self.shape = (int(images.shape[1]), int(images.shape[2]), int(images.shape[3]))
        self._images, self._columns = images, columns

    def __len__(self) -> int:
        return len(self._images)

    def kept(self) -> StoredDataset:
        """Itself."""
        return self

    @property
    def images(self) -> Tensor:
        """All images, (N, C, H, W) in uint8."""
        return self._images

    @property
    def labels(self) -> Tensor:
        """All class indices, (N,)."""
        return self._columns["labels"]

    def facts(self, index: Indices, epoch: int = 0) -> Mapping[str, Tensor]:
        """Labels and extras of an index."""
        index = as_index(index, len(self))
        return {name: column[index.to(column.device)] for name, column in self._columns.items()}

    def batch(self, index: Indices, epoch: int = 0) -> Batch:
        """The images of an index (B,), uint8."""
        index = as_index(index, len(self))
        facts = dict(self.facts(index))
        images = self._images.index_select(0, index.to(self._images.device))
        return Batch(images, facts.pop("labels"), index, facts)

    def to(self, device: torch.device | str) -> StoredDataset:
        """The same dataset on a device, where batches and augmentation then happen."""
        columns = {name: column.to(device) for name, column in self._columns.items()}
        return StoredDataset(self.info, self._images.to(device), columns.pop("labels"), columns)


class Subset(ImageDataset):
    """Some images of another dataset; nothing is copied until it is asked for."""

    def __init__(self, parent: ImageDataset, index: Tensor) -> None:
        if not len(index):
            raise ValueError("a subset has one image at least")
        self.parent, self.index = parent, index
        self.info, self.shape, self.drawn = parent.info, parent.shape, parent.drawn

    def __len__(self) -> int:
        return len(self.index)

    @property
    def changes(self) -> bool:
        """As the parent's do."""
        return self.parent.changes

    def facts(self, index: Indices, epoch: int = 0) -> Mapping[str, Tensor]:
        """Labels and extras of an index."""
        return self.parent.facts(self.index[as_index(index, len(self))], epoch)

    def batch(self, index: Indices, epoch: int = 0) -> Batch:
        """The images of an index (B,), uint8; the batch's index counts within the subset."""
        index = as_index(index, len(self))
        return replace(self.parent.batch(self.index[index], epoch), index=index)

    def to(self, device: torch.device | str) -> Self:
        """The same subset on a device."""
        return type(self)(self.parent.to(device), self.index)


def as_index(index: Indices, length: int) -> Tensor:
    """Which images of ``length``, as whole numbers (B,): of those, or of a mask (length,)."""
    chosen = torch.as_tensor(index).cpu()
    if chosen.dtype == torch.bool and chosen.shape == (length,):
        return chosen.nonzero()[:, 0]
    if chosen.dim() == 1 and not len(chosen):
        return chosen.long()
    if chosen.dim() != 1 or chosen.dtype == torch.bool or chosen.is_floating_point() or chosen.is_complex():
        kind = f"{tuple(chosen.shape)} in {chosen.dtype}"
        raise TypeError(f"images are chosen by whole numbers (B,) or a mask ({length},), got {kind}")
    least, most = int(chosen.min()), int(chosen.max())
    if least < 0 or most >= length:
        raise IndexError(f"images are numbered 0 to {length - 1}, got {least if least < 0 else most}")
    return chosen.long()


def require_memory(count: int, shape: Sequence[int], what: str) -> None:
    """Refuse to keep more images than the machine has memory for."""
    needed = count * torch.Size(shape).numel()
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > have * 3 // 4:
        raise DataError(
            f"{what} would take {needed / 2**30:.1f} GiB of memory, this machine has {have / 2**30:.1f}; "
            "take batches, or a limit"
        )


def _unknown(holder: Batch | ImageDataset, name: str, known: Iterable[str]) -> AttributeError:
    names = ", ".join(known) or "nothing else"
    return AttributeError(f"{type(holder).__name__} has no {name!r}; known of these images: {names}")
