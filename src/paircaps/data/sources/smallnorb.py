"""smallNORB: metadata, reader and registration."""

from __future__ import annotations

import numpy as np
import torch

from paircaps._utils.checks import height_and_width, require_choice
from paircaps._utils.images import resized
from paircaps.data.dataset import ImageDataset, StoredDataset
from paircaps.data.errors import DataError
from paircaps.data.files.arrays import read_norb
from paircaps.data.files.locate import Root
from paircaps.data.metadata import DataFile, Metadata
from paircaps.data.registry import register_dataset
from paircaps.data.sources.published import published_files, published_info
from paircaps.data.viewpoints import seen_from

_EXTRAS: tuple[str, ...] = ("instance", "elevation", "azimuth", "lighting")  # columns of the info file


def _norb_files(part: str, size: int, sums: str) -> tuple[tuple[DataFile, ...], ...]:
    pairs, files = 24_300, []
    contents = {"dat": 24 + pairs * 2 * 96 * 96, "cat": 20 + 4 * pairs, "info": 20 + 16 * pairs}
    for (kind, content_size), md5 in zip(contents.items(), sums.split(), strict=True):
        name = f"smallnorb-5x{part}-{kind}.mat"
        url = f"https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/{name}.gz"
        known_size = size if kind == "dat" else None
        files.append(
            DataFile(f"{name}.gz", md5=md5, size=known_size, content_size=content_size, urls=(url,), also=(name,))
        )
    return (tuple(files),)


SMALLNORB = Metadata(
    "smallnorb",
    "toys under known lighting, elevation and azimuth, photographed by two cameras",
    {"train": 48_600, "test": 48_600},
    (1, 96, 96),
    ("animal", "human", "airplane", "truck", "car"),
    "research only",
    "LeCun, Huang, Bottou: Learning methods for generic object recognition with invariance to pose and lighting, "
    "CVPR 2004",
    {
        "train": _norb_files(
            "46789x9x18x6x2x96x96-training",
            131_896_188,
            "66054832f9accfe74a0f4c36a75bc0a2 23c8b86101fbf0904a000b43d3ed2fd9 51dee1210a742582ff607dfd94e332e3",
        ),
        "test": _norb_files(
            "01235x9x18x6x2x96x96-testing",
            130_799_817,
            "e4ad715691ed5a3a5f138751a4ceb071 5aa791cd7e6016cf957ce9bdb93b8603 a9454f3864d7fd4bb3ea7fc3eb84924e",
        ),
    },
    ("smallnorb", "smallNORB", "norb-small"),
)


def load_smallnorb(
    split: str,
    root: Root = None,
    download: bool = True,
    verify: bool = True,
    stereo: str = "images",
    image_size: int | tuple[int, int] | None = None,
    viewpoints: str = "all",
) -> ImageDataset:
    """smallNORB; extras: ``instance``, ``elevation``, ``azimuth``, ``lighting``, and ``camera`` where pairs are parted.

    Args:
        split: train or test.
        root: folder to look in first, and to download to.
        download: fetch files that are not here.
        verify: refuse files that are not the published ones.
        stereo: ``"images"``, every pair as two images of one channel; ``"channels"``, as one image of two.
        image_size: height and width to scale the 96×96 images down to; the paper takes 48.
        viewpoints: one of ``paircaps.data.viewpoints.VIEWPOINTS``, such as ``"familiar-azimuths"``.
    """
    require_choice("stereo", stereo, ("images", "channels"))
    # files to arrays: pixels (N, 2, 96, 96), categories (N,), infos (N, 4)
    paths = published_files(SMALLNORB, split, root, download, verify)
    most = [file.content_size if verify else None for file in SMALLNORB.files[split][0]]
    pixels, categories, infos = (
        read_norb(path, rank, limit) for path, rank, limit in zip(paths, (4, 1, 2), most, strict=True)
    )
    if pixels.shape[1] != 2 or infos.shape[1] != 4 or not len(pixels) == len(categories) == len(infos):
        shapes = f"{pixels.shape}, {categories.shape}, {infos.shape}"
        raise DataError(f"{paths[0]}: images, categories and infos do not belong together: {shapes}")
    # pairs of images to images
    images, labels = torch.from_numpy(pixels), torch.from_numpy(categories.astype(np.int64))
    extras = dict(zip(_EXTRAS, torch.from_numpy(infos).long().T, strict=True))
    if stereo == "images":
        extras = {name: column.repeat_interleave(2) for name, column in extras.items()}
        extras["camera"] = torch.arange(2).repeat(len(images))
        images, labels = images.reshape(-1, 1, *images.shape[2:]), labels.repeat_interleave(2)
    if image_size is not None:
        images = resized(images, height_and_width("image_size", image_size))
    whole = StoredDataset(published_info(SMALLNORB, split, verify), images, labels, extras)
    return seen_from(whole, viewpoints)


register_dataset("smallnorb", load_smallnorb, SMALLNORB)
