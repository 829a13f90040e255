"""Datasets of labelled images, which have a length and give batches by index.

A stored dataset holds its images as one uint8 tensor, and a batch is a slice of it. A synthetic dataset draws the
images of a batch when it is asked for them. Both have the same methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Self

import torch
from torch import Tensor

from paircaps._utils.checks import require_memory, require_positive
from paircaps._utils.images import as_float
from paircaps._utils.words import visible
from paircaps.data.errors import DataError
from paircaps.data.randomness import permutation
from paircaps.pictures import Fitting

_SECOND_LABEL, _ORIGINALS = "second_label", "originals"  # names of extras, where two digits lie over each other
MASK_INDEX = "mask_index"
"""Name of the extra that says which class each pixel belongs to, (N, H, W): 0 for none, k for class k − 1."""
_CHUNK_PIXELS = 1 << 22  # pixels at a time where all images are read
_IN_MEMORY_MOST = 1 << 30  # bytes of images that are drawn once and stored


Indices = Tensor | Sequence[int]


@dataclass(frozen=True, eq=False)
class Batch:
    """Images with their labels.

    Args:
        images: images (B, C, H, W), uint8 from a dataset, float in 0..1 from a loader.
        labels: class indices (B,).
        index: numbers of the images in their dataset (B,).
        extras: other tensors (B, ...) by name, such as ``pose``, ``second_label``, ``originals`` or ``elevation``; each
            is an attribute too, as ``batch.pose``.
    """

    images: Tensor
    labels: Tensor
    index: Tensor
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def __getattr__(self, name: str) -> Tensor:
        extras = self.__dict__.get("extras", {})  # not set yet while the batch is unpickled
        if name not in extras:
            raise _unknown(self, name, extras)
        return extras[name]

    @property
    def targets(self) -> Tensor:
        """Labels to learn, (B,), or (B, D) where an image shows D classes."""
        if _SECOND_LABEL not in self.extras:
            return self.labels
        return torch.stack([self.labels, self.extras[_SECOND_LABEL]], -1)

    @property
    def reconstruction_target(self) -> Tensor:
        """Images that a decoder should draw, those of the batch, (B, C, H, W), or each digit alone, (B, D, C, H, W)."""
        return self.extras.get(_ORIGINALS, self.images)

    @property
    def mask_source(self) -> Tensor | None:
        """What says where each class is, as :func:`paircaps.losses.target_masks` takes it; None for images without it.

        It is the class of each pixel, (B, H, W), or each digit alone, (B, D, C, H, W).
        """
        return self.extras.get(MASK_INDEX, self.extras.get(_ORIGINALS))

    @property
    def learned(self) -> tuple[Tensor, ...]:
        """Images, targets, what a decoder draws, and the source of masks if there is one, for the objective."""
        masks = () if self.mask_source is None else (self.mask_source,)
        return self.images, self.targets, self.reconstruction_target, *masks

    def to(self, device: torch.device | str) -> Batch:
        """Copy of the batch on a device.

        Args:
            device: the device.
        """
        extras = {name: value.to(device) for name, value in self.extras.items()}
        return Batch(self.images.to(device), self.labels.to(device), self.index.to(device), extras)


@dataclass(frozen=True)
class Info:
    """Name, split and classes of a dataset.

    Args:
        name: name of the dataset, as in ``load_dataset(name)``.
        split: ``"train"`` or ``"test"``.
        classes: names of the classes, in order of their labels.
        note: remark for readers of results, such as "a stand-in for aff-NIST".
        fitting: how picture files were fitted to its images, or must be to look like them.
        skipped: pictures that were left out because they cannot be read, each with the reason.
        made_for_masks: whether masks alone say what is in the images, whose labels are only their largest classes.
    """

    name: str
    split: str
    classes: tuple[str, ...]
    note: str = ""
    fitting: Fitting = field(default_factory=Fitting)
    skipped: tuple[str, ...] = ()
    made_for_masks: bool = False


class ImageDataset(torch.utils.data.Dataset, ABC):
    """Base class of datasets: labelled images by index; also a torch Dataset, so that a DataLoader takes it.

    ``dataset[index]`` is an image (C, H, W) in 0..1 with its class index.

    Attributes:
        info: name, split, classes and note.
        shape: (C, H, W) of an image.
        image_extras: names of the extras that are images, (N, M, C, H, W), with the number M of each.
    """

    info: Info
    shape: tuple[int, int, int]
    image_extras: Mapping[str, int] = {}

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, index: Indices, epoch: int = 0) -> Batch:
        """Batch of some images, as they are stored.

        Args:
            index: numbers of the images, (B,).
            epoch: number of the epoch, which matters to datasets that change by epoch.

        Returns:
            images in uint8, labels and extras.
        """

    @abstractmethod
    def annotations(self, index: Indices, epoch: int = 0) -> Mapping[str, Tensor]:
        """Labels and extras of some images, without their pixels.

        Args:
            index: numbers of the images, (B,).
            epoch: number of the epoch, which matters to datasets that change by epoch.

        Returns:
            tensors (B, ...) by name, ``labels`` among them, without extras that are images.
        """

    @abstractmethod
    def to(self, device: torch.device | str) -> ImageDataset:
        """Copy of the dataset on a device, where batches are made and augmented.

        Args:
            device: the device.
        """

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in order of their labels."""
        return self.info.classes

    @property
    def labels_per_image(self) -> int:
        """Number of classes that an image shows, 1, or 2 where two digits lie over each other."""
        return 2 if _SECOND_LABEL in self._extra_names else 1

    @property
    def has_masks(self) -> bool:
        """Whether it is known which pixels belong to which class, as a segmentation network learns it."""
        return MASK_INDEX in self._extra_names or _ORIGINALS in self.image_extras

    @property
    def images(self) -> Tensor:
        """All images, (N, C, H, W) in uint8."""
        return self._everything.images

    @property
    def labels(self) -> Tensor:
        """All class indices, (N,)."""
        return self._annotations["labels"]

    @property
    def extras(self) -> Mapping[str, Tensor]:
        """Extras of all images, (N, ...) each, by name."""
        return {name: getattr(self, name) for name in self._extra_names}

    def __getattr__(self, name: str) -> Tensor:
        private = name.startswith("_") or "info" not in self.__dict__  # info is not set yet while it is unpickled
        names = () if private else self._extra_names
        if name not in names:
            raise _unknown(self, name, names)
        return self._everything.extras[name] if name in self.image_extras else self._annotations[name]

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Image (C, H, W) as floats in 0..1, as models take it, and its class index."""
        if not isinstance(index, Integral):
            raise TypeError(f"an image has a whole number, got {index!r}; several are had by batch(...) or subset(...)")
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} of a dataset of {len(self)} images")
        batch = self.batch(torch.tensor([index % len(self)]))
        return as_float(batch.images[0]), int(batch.labels[0])

    def __repr__(self) -> str:
        channels, height, width = self.shape
        note = f", {visible(self.info.note)}" if self.info.note else ""
        return (
            f"<{visible(f'{self.info.name} {self.info.split}')}: {len(self):,} images of {height}×{width}×{channels}, "
            f"{len(self.classes)} classes{note}>"
        )

    def class_counts(self) -> Tensor:
        """Number of images of each class, in order of the labels."""
        return torch.bincount(self.labels.cpu(), minlength=len(self.classes))

    def subset(self, index: Indices) -> ImageDataset:
        """Dataset of some of the images.

        Args:
            index: numbers of the images, in the order wanted.
        """
        return Subset(self, as_index(index, len(self)))

    def limit(self, count: int | None, seed: int = 0) -> ImageDataset:
        """Dataset of some of the images, chosen at random: the first ones of a folder would be of one class.

        Args:
            count: most images to take; None takes all.
            seed: seed of the choice.
        """
        if count is None:
            return self
        require_positive(limit=count)
        if count >= len(self):
            return self
        return self.subset(permutation(seed, 0, len(self), "limit")[:count].sort().values)

    def original_index(self, index: int) -> int:
        """Index of an image in the dataset that this one is a part of; the same index if it is no part.

        Args:
            index: index of the image in this dataset.
        """
        return index

    @property
    def changes_by_epoch(self) -> bool:
        """True if an image of an index differs from epoch to epoch."""
        return False

    def in_memory(self) -> ImageDataset:
        """The same images, stored, so that each is drawn once; itself if they change or take more than 1 GiB."""
        if self.changes_by_epoch or self.image_extras or len(self) * math.prod(self.shape) > _IN_MEMORY_MOST:
            return self
        return StoredDataset(self.info, self.images, self.labels, self.extras)

    def index_chunks(self) -> tuple[Tensor, ...]:
        """All indices, split so that the batch of each part takes a few megabytes."""
        return torch.arange(len(self)).split(max(1, _CHUNK_PIXELS // math.prod(self.shape)))

    @cached_property
    def _annotations(self) -> Mapping[str, Tensor]:
        return self.annotations(torch.arange(len(self)))

    @cached_property
    def _everything(self) -> Batch:
        copies = 1 + sum(self.image_extras.values())
        require_memory(len(self) * copies, self.shape, f"all {len(self):,} images of {self.info.name}")
        parts = [self.batch(index) for index in self.index_chunks()]
        extras = {name: torch.cat([part.extras[name] for part in parts]) for name in parts[0].extras}
        images, labels = torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
        return Batch(images, labels, torch.arange(len(self)), extras)

    @cached_property
    def _extra_names(self) -> tuple[str, ...]:
        """Names of the extras, read from the first image."""
        return (*(name for name in self.annotations(torch.arange(1)) if name != "labels"), *self.image_extras)


class StoredDataset(ImageDataset):
    """Dataset whose images are one tensor in memory.

    >>> images = torch.randint(0, 256, (100, 1, 28, 28), dtype=torch.uint8)
    >>> labels = torch.randint(0, 2, (100,))
    >>> StoredDataset(Info("mine", "train", ("cat", "dog")), images, labels)
    <mine train: 100 images of 28×28×1, 2 classes>

    Args:
        info: name, split, classes and note.
        images: images (N, C, H, W) in uint8.
        labels: class indices (N,).
        extras: other tensors (N, ...) by name.
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

    def in_memory(self) -> StoredDataset:
        """The dataset itself."""
        return self

    @property
    def images(self) -> Tensor:
        """All images, (N, C, H, W) in uint8."""
        return self._images

    @property
    def labels(self) -> Tensor:
        """All class indices, (N,)."""
        return self._columns["labels"]

    def annotations(self, index: Indices, epoch: int = 0) -> Mapping[str, Tensor]:
        """Labels and extras of an index (B,) by name."""
        index = as_index(index, len(self))
        return {name: column[index.to(column.device)] for name, column in self._columns.items()}

    def batch(self, index: Indices, epoch: int = 0) -> Batch:
        """Images in uint8, labels and extras of an index (B,)."""
        index = as_index(index, len(self))
        annotations = dict(self.annotations(index))
        images = self._images.index_select(0, index.to(self._images.device))
        return Batch(images, annotations.pop("labels"), index, annotations)

    def to(self, device: torch.device | str) -> StoredDataset:
        """Copy of the dataset on a device, where batches are made and augmented."""
        columns = {name: column.to(device) for name, column in self._columns.items()}
        return StoredDataset(self.info, self._images.to(device), columns.pop("labels"), columns)


class Subset(ImageDataset):
    """Some images of another dataset; none is copied before a batch is asked for."""

    def __init__(self, parent: ImageDataset, index: Tensor) -> None:
        if not len(index):
            raise ValueError("a subset has one image at least")
        self.parent, self.index = parent, index
        self.info, self.shape, self.image_extras = parent.info, parent.shape, parent.image_extras

    def __len__(self) -> int:
        return len(self.index)

    def original_index(self, index: int) -> int:
        """Index of an image in the whole dataset, such as one before its limit."""
        return self.parent.original_index(int(self.index[index]))

    @property
    def changes_by_epoch(self) -> bool:
        """True if an image of an index differs from epoch to epoch."""
        return self.parent.changes_by_epoch

    def annotations(self, index: Indices, epoch: int = 0) -> Mapping[str, Tensor]:
        """Labels and extras of an index (B,) by name."""
        return self.parent.annotations(self.index[as_index(index, len(self))], epoch)

    def batch(self, index: Indices, epoch: int = 0) -> Batch:
        """Images in uint8, labels and extras of an index (B,); the batch's index counts within the subset."""
        index = as_index(index, len(self))
        return replace(self.parent.batch(self.index[index], epoch), index=index)

    def to(self, device: torch.device | str) -> Self:
        """Copy of the subset on a device."""
        return type(self)(self.parent.to(device), self.index)


def as_index(index: Indices, length: int) -> Tensor:
    """Indices (B,) of images out of ``length``, from indices or from a mask (length,), checked."""
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


def _unknown(holder: Batch | ImageDataset, name: str, known: Iterable[str]) -> AttributeError:
    names = ", ".join(known) or "nothing else"
    return AttributeError(f"{type(holder).__name__} has no {name!r}; known of these images: {names}")
