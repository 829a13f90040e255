"""MNIST and Fashion-MNIST: metadata, reader and registration."""

from __future__ import annotations

from collections.abc import Callable

import torch

from paircaps.data.dataset import StoredDataset
from paircaps.data.files.arrays import read_idx
from paircaps.data.files.locate import Root
from paircaps.data.metadata import DIGITS, ON_DARK, DataFile, Metadata
from paircaps.data.registry import register_dataset
from paircaps.data.sources.published import published_files, published_info


def _idx_files(addresses: tuple[str, ...], sums: dict[str, tuple[str, str, int, int]]) -> dict[str, DataFile]:
    return {
        name: DataFile(
            f"{name}.gz",
            md5=md5,
            content_md5=content,
            size=size,
            content_size=content_size,
            urls=tuple(f"{address}{name}.gz" for address in addresses),
            also=(name, name.replace("-idx", ".idx")),
        )
        for name, (md5, content, size, content_size) in sums.items()
    }


def _idx_splits(files: dict[str, DataFile]) -> dict[str, tuple[tuple[DataFile, ...], ...]]:
    return {
        split: ((files[f"{prefix}-images-idx3-ubyte"], files[f"{prefix}-labels-idx1-ubyte"]),)
        for split, prefix in (("train", "train"), ("test", "t10k"))
    }


_SIZES = {"train-images-idx3-ubyte": 47_040_016, "train-labels-idx1-ubyte": 60_008}
_SIZES |= {"t10k-images-idx3-ubyte": 7_840_016, "t10k-labels-idx1-ubyte": 10_008}


def _sums(*rows: tuple[str, str, int]) -> dict[str, tuple[str, str, int, int]]:
    return {name: (*row, size) for (name, size), row in zip(_SIZES.items(), rows, strict=True)}


MNIST = Metadata(
    "mnist",
    "handwritten digits",
    {"train": 60_000, "test": 10_000},
    (1, 28, 28),
    DIGITS,
    "CC BY-SA 3.0",
    "LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, Proc. IEEE 86(11), 1998",
    _idx_splits(
        _idx_files(
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            _sums(
                ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb", 9_912_422),
                ("d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624", 28_881),
                ("9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea", 1_648_877),
                ("ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637", 4_542),
            ),
        )
    ),
    ("mnist", "MNIST", "MNIST/raw"),
    fitting=ON_DARK,
)

FASHION_MNIST = Metadata(
    "fashion-mnist",
    "articles of clothing, a harder MNIST",
    {"train": 60_000, "test": 10_000},
    (1, 28, 28),
    ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    "MIT",
    "Xiao, Rasul, Vollgraf: Fashion-MNIST, arXiv:1708.07747, 2017",
    _idx_splits(
        _idx_files(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),  # no https; the checksum guards it
            _sums(
                ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a", 26_421_880),
                ("25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9", 29_515),
                ("bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a", 4_422_102),
                ("bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965", 5_148),
            ),
        )
    ),
    ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw", "fashion_mnist"),
    system="/usr/share/datasets/fashion-mnist",
    fitting=ON_DARK,
)


def mnist_reader(metadata: Metadata) -> Callable[..., StoredDataset]:
    """Reader of MNIST or Fashion-MNIST, which have the same format."""

    def load(split: str, root: Root = None, download: bool = True, verify: bool = True) -> StoredDataset:
        paths = published_files(metadata, split, root, download, verify)
        images, labels = (
            read_idx(path, rank, file.content_size if verify else None)
            for path, rank, file in zip(paths, (3, 1), metadata.files[split][0], strict=True)
        )
        info = published_info(metadata, split, verify)
        return StoredDataset(info, torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels))

    return load


register_dataset("mnist", mnist_reader(MNIST), MNIST)
register_dataset("fashion-mnist", mnist_reader(FASHION_MNIST), FASHION_MNIST)
