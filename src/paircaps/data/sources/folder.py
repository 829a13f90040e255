"""Folders of pictures, one subfolder per class: reader and registration.

pets/cat/*.jpg  pets/dog/*.png                  split by the content of the files
pets/train/cat/*.jpg  ...  pets/test/cat/*.jpg  split as the folders say
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from paircaps._utils.checks import height_and_width, require_choice, require_memory, require_whole, require_within
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.errors import DataError, os_data_error
from paircaps.data.registry import FOLDER, register_dataset
from paircaps.pictures import MAX_PIXELS, PILLOW_MOST, SUFFIXES, UNREAD, Fit, Fitting, decode_fitted, read_bytes

SPLITS = ("train", "test")
_NAMED_MOST = 20
_BACKGROUND = 255
"""Grey level behind transparent pixels: white paper."""


class _Picture(NamedTuple):
    path: Path
    label: int


def load_folder(
    split: str,
    root: Path | str | None = None,
    image_size: int | tuple[int, int] = 32,
    channels: int = 3,
    fit: Fit = "crop",
    seed: int = 0,
    test_fraction: float = 0.2,
    max_pixels: int = MAX_PIXELS,
) -> StoredDataset:
    """Read the pictures of a folder.

    Args:
        split: train or test.
        root: path of the folder.
        image_size: side, or (height, width), that all pictures are scaled to.
        channels: 1 for grey, 3 for colour.
        fit: how a picture of another aspect is fitted: ``"crop"``, ``"pad"`` or ``"stretch"``.
        seed: seed of the split, where the folder has no train/ and test/.
        test_fraction: share of the pictures that goes to the test split there. A picture's content alone decides, so
            two copies of one are never on both sides, and a picture added later moves no other.
        max_pixels: most pixels of a picture.
    """
    # arguments
    require_choice("split", split, SPLITS)
    require_choice("channels", channels, (1, 3))
    require_within("max_pixels", max_pixels, 1, PILLOW_MOST)
    require_whole(seed=seed)
    size, fitting = height_and_width("image_size", image_size), Fitting(fit, _BACKGROUND)
    if not isinstance(test_fraction, float | int) or not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must be between 0 and 1, got {test_fraction!r}")
    if root is None:
        raise DataError("a folder of pictures is named by its path: ./pets, or root=...")
    # pictures of the split
    folder = Path(root).expanduser()
    classes, pictures, chosen = _chosen(folder, split, seed, test_fraction)
    require_memory(len(chosen), (channels, *size), f"{len(chosen):,} pictures of {folder}")

    def decode(number: int) -> Tensor | DataError:
        path = pictures[number].path
        try:
            return decode_fitted(read_bytes(path), str(path), size, channels, fitting, max_pixels).image
        except DataError as error:
            return error

    # decode all, so that one error names every damaged picture
    images = torch.stack(_all_good(_in_threads(decode, chosen)))
    labels = torch.tensor([pictures[number].label for number in chosen])
    return StoredDataset(Info(folder.absolute().name, split, classes, fitting=fitting), images, labels)


def _chosen(
    folder: Path, split: str, seed: int, test_fraction: float
) -> tuple[tuple[str, ...], list[_Picture], list[int]]:
    """Names of the classes, all pictures, and numbers of the pictures in a split."""
    inside = _subfolders(folder)
    if set(SPLITS) <= set(inside):
        classes = tuple(_subfolders(folder / "train"))
        strangers = set(_subfolders(folder / split)) - set(classes)
        if strangers:
            raise DataError(f"{folder / split}: class {min(strangers)!r} is not among those of {folder / 'train'}")
        pictures = _pictures(folder / split, classes, required=split == "train")
        return classes, pictures, list(range(len(pictures)))
    if set(SPLITS) & set(inside):
        present = min(set(SPLITS) & set(inside))
        raise DataError(f"{folder}: has {present}/ alone; train/ and test/ go together, or neither")
    classes = tuple(inside)
    pictures = _pictures(folder, classes, required=True)
    in_test = _in_threads(lambda number: _hash(pictures[number].path, seed) < test_fraction, range(len(pictures)))
    chosen = [number for number, test in enumerate(in_test) if test == (split == "test")]
    _require_every_class(folder, split, classes, {pictures[number].label for number in chosen})
    return classes, pictures, chosen


def _pictures(folder: Path, classes: tuple[str, ...], required: bool) -> list[_Picture]:
    pictures = []
    for label, name in enumerate(classes):
        there = (folder / name).is_dir()
        paths = _picture_files(folder / name) if there else []
        if not paths and (there or required):
            raise DataError(f"{folder / name}: no picture in it ({', '.join(sorted(SUFFIXES))})")
        pictures += [_Picture(path, label) for path in paths]
    if not pictures:
        raise DataError(f"{folder}: no pictures: give a folder with one subfolder per class")
    return pictures


def _subfolders(folder: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not _is_hidden(entry.name))
    except OSError as error:
        raise os_data_error("read the folder", folder, error) from None
    loose = [entry.name for entry in os.scandir(folder) if Path(entry.name).suffix.lower() in SUFFIXES | UNREAD]
    if loose and names:
        warnings.warn(f"{folder}: pictures beside the class folders are passed over: {min(loose)} ...", stacklevel=2)
    if not names:
        raise DataError(f"{folder}: no subfolders: give a folder with one subfolder per class")
    return names


def _picture_files(folder: Path) -> list[Path]:
    """Pictures in a folder and the folders in it, sorted."""

    def refuse(error: OSError) -> None:
        raise os_data_error("read the folder", error.filename, error)

    found = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for path in (Path(place, name) for name in sorted(names) if not _is_hidden(name)):
            if path.suffix.lower() in UNREAD:
                raise DataError(f"{path}: pictures of this kind are not read; convert it to PNG, JPEG, BMP or WebP")
            if path.suffix.lower() in SUFFIXES:
                found.append(path)
    return found


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _hash(path: Path, seed: int) -> float:
    """Hash of a file's content and the seed, as a number in [0, 1)."""
    digest = hashlib.blake2b(read_bytes(path), digest_size=8, key=str(seed).encode()[:64]).digest()
    return int.from_bytes(digest, "big") / 2**64


def _require_every_class(folder: Path, split: str, classes: tuple[str, ...], seen: set[int]) -> None:
    """Raise a DataError for a class without training pictures; warn of one without test pictures."""
    missing = ", ".join(repr(name) for label, name in enumerate(classes) if label not in seen)
    if not missing:
        return
    reason = (
        f"{folder}: by chance no picture of {missing} is in the {split} split; a class needs a handful of pictures, or "
        "give folders train/ and test/"
    )
    if split == "train" or not seen:
        raise DataError(reason)
    warnings.warn(reason, stacklevel=2)


def _all_good(images: Sequence[Tensor | DataError]) -> list[Tensor]:
    """The images, if all could be read; otherwise one DataError that names those that could not."""
    bad = [str(image) for image in images if isinstance(image, DataError)]
    if bad:
        more = [f"and {len(bad) - _NAMED_MOST} more"] if len(bad) > _NAMED_MOST else []
        raise DataError("\n".join(bad[:_NAMED_MOST] + more))
    return [image for image in images if isinstance(image, Tensor)]


def _in_threads(task, numbers: Sequence[int]) -> list:
    """Run a task for all numbers in threads, results in order; decoding and hashing release Python's lock."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        try:
            return list(pool.map(task, numbers))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C the others need no work
            raise


register_dataset(FOLDER, load_folder)
