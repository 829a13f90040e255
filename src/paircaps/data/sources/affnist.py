"""aff-NIST: metadata, reader and registration."""

from __future__ import annotations

import numpy as np
import torch

from paircaps.data.dataset import StoredDataset
from paircaps.data.files.locate import Root, record_checksum, require_first_seen
from paircaps.data.files.matlab import open_mat, read_mat, require_labels
from paircaps.data.metadata import DIGITS, ON_DARK, DataFile, Metadata
from paircaps.data.registry import register_dataset
from paircaps.data.sources.published import published_files, published_info

AFFNIST = Metadata(
    "affnist",
    "MNIST's test digits under 32 affine transformations each",
    {"test": 320_000},
    (1, 40, 40),
    DIGITS,
    "none stated",
    "Tieleman: affNIST, https://www.cs.toronto.edu/~tijmen/affNIST, 2013",
    {
        "test": (
            (
                DataFile(
                    "test.mat.zip",
                    urls=("https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/test.mat.zip",),
                    also=("test.mat", "affNIST_test.mat"),
                ),
            ),
        )
    },
    ("affnist", "affNIST", "affNIST/32x/transformed"),
    fitting=ON_DARK,
)


def load_affnist(split: str, root: Root = None, download: bool = True, verify: bool = True) -> StoredDataset:
    """aff-NIST's 32 transformations of MNIST's test digits.

    No checksum of its file is published. The first file that can be read has its checksum recorded, and later ones are
    compared with it before they are read.
    """
    (path,) = published_files(AFFNIST, split, root, download, verify)
    unrecorded = require_first_seen(path, AFFNIST) if verify else None
    count = AFFNIST.counts[split]
    with open_mat(path) as stream:
        arrays = read_mat(stream, {"affNISTdata.image": count * 40 * 40, "affNISTdata.label_int": count * 8})
        pixels, labels = arrays["affNISTdata.image"], arrays["affNISTdata.label_int"].ravel()
        if pixels.dtype != np.uint8 or pixels.ndim != 2 or len(pixels) != 40 * 40:
            raise stream.error(f"image is {pixels.shape} of {pixels.dtype} in place of (1600, N) of uint8")
        require_labels(stream, labels, 0, 9)
    if unrecorded is not None:
        record_checksum(path, AFFNIST, unrecorded)
    images = torch.from_numpy(np.ascontiguousarray(pixels.T)).view(-1, 1, 40, 40)
    return StoredDataset(published_info(AFFNIST, split, verify), images, torch.from_numpy(labels.astype(np.int64)))


register_dataset("affnist", load_affnist, AFFNIST)
