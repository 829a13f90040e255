"""Batches of a dataset, in an order that is a pure function of (seed, epoch).

Written by hand in place of torch's DataLoader so that a resumed training is exactly the same: a batch is known by its
epoch and number alone, so there is no state to save, and training goes on with the next number. Several processes share
every batch: two with half of 128 images each see together what one with 128 sees. Images are one tensor in memory, so
there are no workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paircaps._utils.checks import require_bool, require_not_negative, require_positive, require_whole
from paircaps._utils.images import as_float
from paircaps.data.augment import Augmentation
from paircaps.data.dataset import Batch, ImageDataset
from paircaps.data.randomness import permutation


@dataclass(frozen=True)
class Loader:
    """Batches of a dataset by epoch and step, in an order that depends on the seed and the epoch alone.

    >>> from paircaps.data import Translate, load_dataset
    >>> digits = load_dataset("glyphs", "test")
    >>> loader = Loader(digits, batch_size=64, augment=Translate(2))
    >>> len(loader)
    32
    >>> batch = next(loader.epoch(0))  # for batch in loader.epoch(epoch)
    >>> batch.images.shape, batch.images.dtype, batch.labels.shape
    (torch.Size([64, 1, 28, 28]), torch.float32, torch.Size([64]))

    Args:
        dataset: dataset to read; batches are made on its device.
        batch_size: number of images in a batch, of all processes together.
        augment: augmentation of the images, which become floats in 0..1 in any case. Only images change: poses and
            originals stay those of the dataset.
        seed: seed of the order and the augmentation.
        shuffle: take the images of every epoch in another order; otherwise in the dataset's order.
        drop_last: leave out a last batch that is not full.
        rank: number of this process, which takes its share of every batch; that of a last batch may be empty.
        world_size: number of processes that share every batch.
    """

    dataset: ImageDataset
    batch_size: int = 128
    augment: Augmentation | None = None
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.dataset, ImageDataset):
            kind = type(self.dataset).__name__
            raise TypeError(f"dataset must be one of load_dataset(name), or of wrap_dataset(yours), got {kind}")
        if self.augment is not None and not isinstance(self.augment, Augmentation):
            raise TypeError(f"augment must be a step such as Flip(), or Compose(step, ...), got {self.augment!r}")
        require_whole(seed=self.seed)
        require_positive(batch_size=self.batch_size, world_size=self.world_size)
        require_not_negative(rank=self.rank)
        require_bool(shuffle=self.shuffle, drop_last=self.drop_last)
        if self.rank >= self.world_size:
            raise ValueError(f"rank must be below world_size, {self.world_size}, got {self.rank}")
        if self.batch_size % self.world_size:
            raise ValueError(f"batch_size {self.batch_size} cannot be shared evenly by {self.world_size} processes")
        if self.drop_last and self.batch_size > len(self.dataset):
            raise ValueError(
                f"batch_size {self.batch_size} is more than the {len(self.dataset)} images there are, and drop_last "
                "would leave none"
            )

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Batch]:
        raise TypeError("a loader has many epochs: for batch in loader.epoch(0)")

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Batches of an epoch.

        Args:
            epoch: number of the epoch, from 0.
            start: number of the first batch, for a training that goes on in the middle of an epoch.
        """
        require_not_negative(start=start)
        order = self.order(epoch)
        return (self._batch(order, epoch, step) for step in range(start, len(self)))

    def batch(self, epoch: int, step: int) -> Batch:
        """One batch of an epoch, or this process's share of it.

        Args:
            epoch: number of the epoch, from 0.
            step: number of the batch in the epoch, from 0.

        Raises:
            IndexError: if the epoch has no such batch.
        """
        require_whole(step=step)
        if not 0 <= step < len(self):
            raise IndexError(f"step {step} of an epoch of {len(self)} batches")
        return self._batch(self.order(epoch), epoch, step)

    def order(self, epoch: int) -> Tensor:
        """Indices of all images in the order of an epoch.

        Args:
            epoch: number of the epoch, from 0.

        Returns:
            (N,).
        """
        require_not_negative(epoch=epoch)
        length = len(self.dataset)
        return permutation(self.seed, epoch, length) if self.shuffle else torch.arange(length)

    def _batch(self, order: Tensor, epoch: int, step: int) -> Batch:
        whole = order[step * self.batch_size : (step + 1) * self.batch_size]
        index = whole.tensor_split(self.world_size)[self.rank]
        batch = self.dataset.batch(index, epoch)
        images = batch.images
        if self.augment is not None:
            images = self.augment.apply(images, self.augment.noise(self.seed, epoch, index))
        image_extras = {name: as_float(batch.extras[name]) for name in self.dataset.image_extras}
        return replace(batch, images=as_float(images), extras={**batch.extras, **image_extras})
