"""Noise in the shape of a dataset: for measuring time and sizes where the dataset is not here."""

from __future__ import annotations

import torch

from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.metadata import Metadata


def noise_like(card: Metadata, count: int, side: int | None = None) -> StoredDataset:
    """Images as those of a dataset in shape, labels and what else it has, from nowhere.

    Args:
        card: of the dataset.
        count: of images.
        side: of an image, where it is not the dataset's own.
    """
    channels, height, width = card.shape
    shape = (count, channels, side or height, side or width)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))  # pyright: ignore[reportCallIssue, reportArgumentType]
    labels = torch.arange(count) % len(card.classes)
    extras = {}
    if card.name.startswith("multi-"):
        extras = {"second_label": (labels + 1) % len(card.classes), "originals": torch.stack([images, images], 1) / 255}
    return StoredDataset(Info(card.name, "train", card.classes, "noise of the same shape"), images, labels, extras)
