"""Wrap any torch Dataset of images and labels as a stored dataset."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paircaps._utils.checks import require_memory
from paircaps._utils.extras import require_extra
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.errors import DataError
from paircaps.pictures import SIXTEEN_BIT, as_tensor, eight_bit

_CLASSES_MOST = 100_000
_GREY_MODES = ("1", "L", "LA", *SIXTEEN_BIT)
_COLOUR_MODES = ("RGB", "RGBA", "P", "CMYK", "YCbCr", "HSV", "LAB")


def wrap_dataset(
    dataset: Any, classes: Sequence[str] | None = None, name: str = "wrapped", split: str = "train"
) -> StoredDataset:
    """Read everything of an object that has a length and gives (image, label) by index.

    Args:
        dataset: a ``torch.utils.data.Dataset`` of pictures: PIL images, uint8 tensors (C, H, W), floats in 0..1, or
            arrays (H, W) or (H, W, C) in uint8, all of one size.
        classes: names of the classes; the labels as text without them.
        name: name of the dataset in messages and results.
        split: name of the split.
    """
    if isinstance(classes, str):
        raise TypeError(f"classes must be a list of names, got {classes!r}")
    try:
        length = len(dataset)
    except TypeError:
        raise TypeError(f"a dataset to wrap needs a length, {type(dataset).__name__} has none") from None
    if not length:
        raise DataError(f"{name}: the dataset to wrap is empty")
    images: Tensor | None = None
    labels = torch.empty(length, dtype=torch.int64)
    for number in range(length):
        image, labels[number] = _item(dataset, number, name)
        if images is None:
            require_memory(length, image.shape, f"{length:,} images of {name}")
            images = torch.empty((length, *image.shape), dtype=torch.uint8)
        if image.shape != images.shape[1:]:
            raise DataError(f"{name}: image {number} is {tuple(image.shape)}, image 0 {tuple(images.shape[1:])}")
        images[number] = image
    assert images is not None
    if classes is None and int(labels.max()) >= _CLASSES_MOST:
        raise DataError(f"{name}: label {int(labels.max())}: give the classes if there are so many")
    names = tuple(classes) if classes is not None else tuple(str(label) for label in range(int(labels.max()) + 1))
    return StoredDataset(Info(name, split, names), images, labels)


def _item(dataset: Any, number: int, name: str) -> tuple[Tensor, int]:
    item = dataset[number]
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise DataError(f"{name}: item {number} must be (image, label), got {type(item).__name__}")
    label = item[1].item() if isinstance(item[1], Tensor | np.generic) and item[1].ndim == 0 else item[1]
    if isinstance(label, bool) or not isinstance(label, Integral) or abs(int(label)) >= 2**31:
        raise DataError(f"{name}: label {number} must be a whole number, got {item[1]!r}")
    return _bytes(item[0], f"{name}: image {number}"), int(label)


def _bytes(image: Any, what: str) -> Tensor:
    """Tensor (C, H, W) in uint8 of an image of any supported kind."""
    require_extra("reading pictures", "PIL")
    from PIL import Image

    if isinstance(image, Image.Image):
        if image.mode not in _GREY_MODES + _COLOUR_MODES:
            raise DataError(f"{what} is a picture of mode {image.mode}, not one of {_GREY_MODES + _COLOUR_MODES}")
        return as_tensor(eight_bit(image, 1 if image.mode in _GREY_MODES else 3))
    if not isinstance(image, Tensor):
        array = np.array(image)
        if array.ndim not in (2, 3) or not array.size or array.dtype.kind not in "uif":
            raise DataError(f"{what} must be an array (H, W) or (H, W, C) of numbers, got {type(image).__name__}")
        image = torch.from_numpy(array.reshape(*array.shape[:2], -1)).permute(2, 0, 1)
    if image.dim() not in (2, 3) or not image.numel():
        raise DataError(f"{what} must have axes (C, H, W), got shape {tuple(image.shape)}")
    image = image if image.dim() == 3 else image[None]
    if image.dtype == torch.uint8:
        return image
    if not image.is_floating_point() or not bool(((image >= 0) & (image <= 1)).all()):
        raise DataError(f"{what} must be uint8, or floats in 0..1: wrap it before it is normalised")
    return (image * 255).round().to(torch.uint8)
