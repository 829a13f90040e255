"""CIFAR-10: metadata, reader and registration."""

from __future__ import annotations

import numpy as np
import torch

from paircaps.data.dataset import StoredDataset
from paircaps.data.files.cifar import read_cifar, read_cifar_tar
from paircaps.data.files.locate import Root
from paircaps.data.metadata import DataFile, Metadata
from paircaps.data.registry import register_dataset
from paircaps.data.sources.published import find_files, published_info

_BATCHES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
_FILES = tuple(DataFile(name, md5=md5, size=30_730_000) for name, md5 in _BATCHES.items())
_TAR = DataFile(
    "cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    size=170_052_171,
    urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)

CIFAR10 = Metadata(
    "cifar10",
    "small colour photographs of ten kinds of things",
    {"train": 50_000, "test": 10_000},
    (3, 32, 32),
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "none stated",
    "Krizhevsky: Learning multiple layers of features from tiny images, technical report, 2009",
    {"train": (_FILES[:5], (_TAR,)), "test": (_FILES[5:], (_TAR,))},
    ("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"),
)


def load_cifar10(split: str, root: Root = None, download: bool = True, verify: bool = True) -> StoredDataset:
    """CIFAR-10 from its .bin files or the tar they come in.

    The checksums compared are those of the .bin files, also of those inside a tar, which may have been packed again.
    """
    paths = find_files(CIFAR10, split, root, download, verify)
    loose = CIFAR10.files[split][0]
    checksums = {file.name: file.md5 if verify else None for file in loose}
    if len(paths) == len(loose) and paths[0].name == loose[0].name:
        batches = [read_cifar(path, checksums[path.name]) for path in paths]
    else:
        batches = read_cifar_tar(paths[0], list(checksums), checksums)
    images = np.concatenate([batch.images for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches])
    return StoredDataset(published_info(CIFAR10, split, verify), torch.from_numpy(images), torch.from_numpy(labels))


register_dataset("cifar10", load_cifar10, CIFAR10)
