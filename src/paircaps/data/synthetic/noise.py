"""Random images in the shape of a dataset, to measure time and memory where the dataset is not here."""

from __future__ import annotations

import torch

from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.metadata import Metadata


def noise_dataset(metadata: Metadata, count: int, side: int | None = None) -> StoredDataset:
    """Random pixels with the shape, the classes and the extras of a dataset.

    Args:
        metadata: metadata of the dataset.
        count: number of images.
        side: height and width of an image; those of the dataset without it.
    """
    channels, height, width = metadata.shape
    shape = (count, channels, side or height, side or width)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))  # pyright: ignore[reportCallIssue, reportArgumentType]
    labels = torch.arange(count) % len(metadata.classes)
    extras = {}
    if metadata.name.startswith("multi-"):
        extras = {
            "second_label": (labels + 1) % len(metadata.classes),
            "originals": torch.stack([images, images], 1) / 255,
        }
    return StoredDataset(
        Info(metadata.name, "train", metadata.classes, "noise of the same shape"), images, labels, extras
    )
