"""SVHN, street view house numbers: metadata, reader and registration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paircaps._utils.checks import require_bool
from paircaps.data.dataset import StoredDataset
from paircaps.data.files.locate import Root
from paircaps.data.files.matlab import describe_mat, read_mat, require_labels
from paircaps.data.files.stream import open_stream
from paircaps.data.metadata import DIGITS, DataFile, Metadata
from paircaps.data.registry import register_dataset
from paircaps.data.sources.published import published_files, published_info

_UNVERIFIED_MOST = 2 << 30  # bytes of an array in a file that need not be the published one


def _svhn_file(name: str, size: int, md5: str) -> tuple[tuple[DataFile, ...], ...]:
    url = f"http://ufldl.stanford.edu/housenumbers/{name}"  # no https; the checksum guards it
    return ((DataFile(name, md5=md5, size=size, urls=(url,)),),)


SVHN = Metadata(
    "svhn",
    "house numbers photographed from the street, cropped to one digit",
    {"train": 73_257, "test": 26_032, "extra": 531_131},
    (3, 32, 32),
    DIGITS,
    "non-commercial use only",
    "Netzer et al.: Reading digits in natural images with unsupervised feature learning, NIPS workshop, 2011",
    {
        "train": _svhn_file("train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373"),
        "test": _svhn_file("test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3"),
        "extra": _svhn_file("extra_32x32.mat", 1_329_278_602, "a93ce644f1a588dc4d68dda5feec44a7"),
    },
    ("svhn", "SVHN"),
)


def load_svhn(
    split: str, root: Root = None, download: bool = True, verify: bool = True, extra: bool = False
) -> StoredDataset:
    """SVHN's cropped digits.

    Args:
        split: train, test, or extra by itself.
        root: folder to look in first, and to download to.
        download: fetch files that are not here.
        verify: refuse files that are not the published ones.
        extra: add the 531,131 easier digits to the train split.
    """
    require_bool(extra=extra)
    if extra and split != "train":
        raise ValueError(f"extra digits are added to the train split, not to {split!r}")
    files = {
        part: published_files(SVHN, part, root, download, verify)[0]
        for part in ([split, "extra"] if extra else [split])
    }
    parts = [_read_file(path, SVHN.counts[part], verify) for part, path in files.items()]
    images, labels = (torch.cat(tensors) if extra else tensors[0] for tensors in zip(*parts, strict=True))
    return StoredDataset(published_info(SVHN, split, verify, describe_mat(files[split])), images, labels)


def _read_file(path: Path, count: int, verify: bool) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels (N,) of one file, which has ``count`` images if it is the published one."""
    most = (count * 3 * 32 * 32, count * 8) if verify else (_UNVERIFIED_MOST, _UNVERIFIED_MOST)
    with open_stream(path) as stream:
        arrays = read_mat(stream, {"X": most[0], "y": most[1]})
        pixels, labels = arrays["X"], arrays["y"].ravel()
        if pixels.dtype != np.uint8 or pixels.shape[:3] != (32, 32, 3) or pixels.ndim > 4:
            raise stream.error(f"X is {pixels.shape} of {pixels.dtype} in place of (32, 32, 3, N) of uint8")
        require_labels(stream, labels, 1, 10)
    images = np.ascontiguousarray(pixels.reshape(32, 32, 3, -1).transpose(3, 2, 0, 1))
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64) % 10)  # 10 is the digit 0


register_dataset("svhn", load_svhn, SVHN)
