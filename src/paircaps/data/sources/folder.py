"""Folders of pictures, one subfolder per class: reader and registration.

pets/cat/*.jpg  pets/dog/*.png                  every class gives its share to the test split
pets/train/cat/*.jpg  ...  pets/test/cat/*.jpg  split as the folders say

With the option ``masks`` there are no subfolders of classes: see ``masks.py``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from paircaps._utils.checks import height_and_width, require_choice, require_memory, require_whole, require_within
from paircaps._utils.words import visible
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.errors import DataError, os_data_error
from paircaps.data.files.picture_files import (
    LabelledPicture,
    all_good,
    in_threads,
    is_hidden,
    list_skipped,
    picture_files,
)
from paircaps.data.registry import FOLDER, register_dataset
from paircaps.data.sources.masks import MaskedFolders, load_masked
from paircaps.data.split import content_hash, share_of_each_class
from paircaps.pictures import (
    MAX_PIXELS,
    PILLOW_MOST,
    SUFFIXES,
    UNREAD,
    Fit,
    Fitting,
    Inversion,
    decode_fitted,
    read_bytes,
)

SPLITS = ("train", "test")
WHOLE = "all"
"""Split of all pictures of a folder that has no train/ and test/."""

SPLIT_BY = ("class", "content")
ON_ERROR = ("raise", "skip")


def load_folder(
    split: str,
    root: Path | str | None = None,
    image_size: int | tuple[int, int] = 32,
    channels: int = 3,
    fit: Fit = "crop",
    background: int = 255,
    invert: Inversion = "never",
    seed: int = 0,
    test_fraction: float = 0.2,
    max_pixels: int = MAX_PIXELS,
    split_by: Literal["class", "content"] = "class",
    on_error: Literal["raise", "skip"] = "raise",
    masks: str | Path | None = None,
    classes: Sequence[str] | None = None,
) -> StoredDataset:
    """Read the pictures of a folder.

    Args:
        split: train or test; or all, of a folder without train/ and test/.
        root: path of the folder.
        image_size: side, or (height, width), that all pictures are scaled to.
        channels: 1 for grey, 3 for colour.
        fit: how a picture of another aspect is fitted: ``"crop"``, ``"pad"`` or ``"stretch"``.
        background: grey level behind transparent pixels; 255 is white paper.
        invert: whether dark and light are exchanged: ``"never"``, ``"always"``, or of pictures that are ``"light"`` at
            their edges.
        seed: seed of the split, where the folder has no train/ and test/.
        test_fraction: share of the pictures that goes to the test split there. Two copies of one are never on both
            sides.
        max_pixels: most pixels of a picture.
        split_by: ``"class"``: every class gives its share to the test split, rounded, and a picture added later moves
            one other at most. ``"content"``: a hash of the content alone decides for each picture, as in runs of
            earlier versions; the shares of the classes then differ by chance.
        on_error: ``"raise"`` an error that names the damaged pictures, or ``"skip"`` them with a warning that does;
            ``info.skipped`` has them all.
        masks: folder of indexed PNG masks of the same names as the pictures, for segmentation; None for pictures in
            subfolders of their classes.
        classes: names of the classes of indices 1, 2 and so on of the masks; None for the lines of ``classes.txt`` in
            their folder.
    """
    # arguments
    require_choice("split", split, (*SPLITS, WHOLE))
    require_choice("channels", channels, (1, 3))
    require_choice("split_by", split_by, SPLIT_BY)
    require_choice("on_error", on_error, ON_ERROR)
    require_within("max_pixels", max_pixels, 1, PILLOW_MOST)
    require_whole(seed=seed)
    size, fitting = height_and_width("image_size", image_size), Fitting(fit, background, invert)
    if not isinstance(test_fraction, float | int) or not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must be between 0 and 1, got {test_fraction!r}")
    if root is None:
        raise DataError(
            "a folder of pictures is named by its path: ./pets, or root=...; in a training --data.name ./pets"
        )
    if masks is None and classes is not None:
        raise ValueError("classes names the indices of masks, and there are none; give masks=FOLDER too")
    if not isinstance(masks, str | Path | None):
        raise ValueError(f"masks must be the path of a folder, got {masks!r}")
    if not isinstance(classes, str | Sequence | None):
        raise ValueError(f"classes must be names, that of index 1 first, got {classes!r}")
    # pictures of the split
    folder = Path(root).expanduser()
    skipped: list[str] | None = [] if on_error == "skip" else None
    if masks is not None:
        places = MaskedFolders(folder, Path(masks).expanduser(), size, channels, fitting, max_pixels)
        return load_masked(places, split, classes, seed, test_fraction, skipped)
    names, pictures = _split_pictures(folder, split, seed, test_fraction, split_by, skipped)
    require_memory(len(pictures), (channels, *size), f"{len(pictures):,} pictures of {folder}")

    def decode(path: Path) -> Tensor:
        return decode_fitted(read_bytes(path), str(path), size, channels, fitting, max_pixels).image

    # decode all, so that one error names every damaged picture
    pictures, images = all_good(pictures, in_threads(decode, pictures), skipped)
    if skipped:
        _require_every_class(folder, split, names, pictures, "no picture of {} can be read in the {} split")
        warnings.warn(f"{folder}, {split} split: {list_skipped(skipped)}", stacklevel=2)
    labels = torch.tensor([picture.label for picture in pictures])
    info = Info(folder.absolute().name, split, names, fitting=fitting, skipped=tuple(skipped or ()))
    return StoredDataset(info, torch.stack(images), labels)


def _split_pictures(
    folder: Path, split: str, seed: int, test_fraction: float, split_by: str, skipped: list[str] | None
) -> tuple[tuple[str, ...], list[LabelledPicture]]:
    """Names of the classes, and the pictures of a split."""
    inside = _subfolders(folder)
    if set(SPLITS) <= set(inside):
        require_choice(f"split of {folder}", split, SPLITS)
        classes = tuple(_subfolders(folder / "train"))
        strangers = set(_subfolders(folder / split)) - set(classes)
        if strangers:
            raise DataError(f"{folder / split}: class {min(strangers)!r} is not among those of {folder / 'train'}")
        return classes, _pictures(folder / split, classes, split == "train", skipped)
    if set(SPLITS) & set(inside):
        present = min(set(SPLITS) & set(inside))
        raise DataError(f"{folder}: has {present}/ alone; train/ and test/ go together, or neither")
    classes = tuple(inside)
    pictures = _pictures(folder, classes, True, skipped)
    if split == WHOLE:
        return classes, pictures
    hashed = in_threads(lambda path: content_hash(read_bytes(path), seed), pictures)
    pictures, hashes = all_good(pictures, hashed, skipped)
    if split_by == "class":
        in_test = share_of_each_class([picture.label for picture in pictures], hashes, test_fraction)
        needed = "two different pictures"
    else:
        in_test = [content < test_fraction for content in hashes]
        needed = "a handful of pictures, because chance decides"
    chosen = [picture for picture, test in zip(pictures, in_test, strict=True) if test == (split == "test")]
    reason = f"no picture of {{}} is in the {{}} split; a class needs {needed}, or give folders train/ and test/"
    _require_every_class(folder, split, classes, chosen, reason)
    return classes, chosen


def _pictures(
    folder: Path, classes: tuple[str, ...], required: bool, skipped: list[str] | None
) -> list[LabelledPicture]:
    pictures = []
    for label, name in enumerate(classes):
        there = (folder / name).is_dir()
        paths = picture_files(folder / name, skipped) if there else []
        if not paths and (there or required):
            raise DataError(f"{folder / name}: no picture in it ({', '.join(sorted(SUFFIXES))})")
        pictures += [LabelledPicture(path, label) for path in paths]
    if not pictures:
        raise DataError(f"{folder}: no pictures: give a folder with one subfolder per class")
    return pictures


def _subfolders(folder: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not is_hidden(entry.name))
    except OSError as error:
        raise os_data_error("read the folder", folder, error) from None
    loose = [entry.name for entry in os.scandir(folder) if Path(entry.name).suffix.lower() in SUFFIXES | UNREAD]
    if loose and names:
        warnings.warn(
            f"{folder}: pictures beside the class folders are passed over: {visible(min(loose))} ...", stacklevel=2
        )
    if not names:
        raise DataError(f"{folder}: no subfolders: give a folder with one subfolder per class")
    return names


def _require_every_class(
    folder: Path, split: str, classes: tuple[str, ...], pictures: Sequence[LabelledPicture], reason: str
) -> None:
    """Raise a DataError for a class without training pictures; warn of one without test pictures.

    Args:
        folder: folder of the pictures.
        split: train or test.
        classes: names of all classes.
        pictures: pictures of the split.
        reason: what to say, with places for the missing classes and the split.
    """
    seen = {picture.label for picture in pictures}
    missing = ", ".join(repr(name) for label, name in enumerate(classes) if label not in seen)
    if not missing:
        return
    sentence = f"{folder}: {reason.format(missing, split)}"
    if split == "train" or not seen:
        raise DataError(sentence)
    warnings.warn(sentence, stacklevel=2)


register_dataset(FOLDER, load_folder)
