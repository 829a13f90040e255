"""Datasets of images (published, synthetic, or folders of pictures), batches and augmentation.

``load_dataset`` loads a dataset, ``Loader`` gives its batches in an order that depends on seed and epoch alone, and the
augmentations are batched functions of images and random numbers.
"""

from __future__ import annotations

from paircaps.data import sources as _sources  # noqa: F401  # registers the datasets of the package
from paircaps.data.augment import (
    AffineWarp,
    AlternatingFlip,
    Augmentation,
    Brightness,
    CentreCrop,
    Compose,
    Contrast,
    Cutout,
    Flip,
    RandomCrop,
    Standardise,
    Translate,
)
from paircaps.data.dataset import Batch, ImageDataset, Info, StoredDataset
from paircaps.data.errors import DataError
from paircaps.data.loader import Loader
from paircaps.data.metadata import DataFile, Metadata
from paircaps.data.registry import dataset_metadata, list_datasets, load_dataset, register_dataset
from paircaps.data.wrap import wrap_dataset
from paircaps.pictures import decode_picture

__all__ = [
    "AffineWarp",
    "AlternatingFlip",
    "Augmentation",
    "Batch",
    "Brightness",
    "CentreCrop",
    "Compose",
    "Contrast",
    "Cutout",
    "DataError",
    "DataFile",
    "Flip",
    "ImageDataset",
    "Info",
    "Loader",
    "Metadata",
    "RandomCrop",
    "Standardise",
    "StoredDataset",
    "Translate",
    "dataset_metadata",
    "decode_picture",
    "list_datasets",
    "load_dataset",
    "register_dataset",
    "wrap_dataset",
]
