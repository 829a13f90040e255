"""Folders of pictures, one subfolder per class: reader and registration.

pets/cat/*.jpg  pets/dog/*.png                  every class gives its share to the test split
pets/train/cat/*.jpg  ...  pets/test/cat/*.jpg  split as the folders say
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from paircaps._utils.checks import height_and_width, require_choice, require_memory, require_whole, require_within
from paircaps._utils.words import counted, visible
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.errors import DataError, os_data_error
from paircaps.data.registry import FOLDER, register_dataset
from paircaps.data.split import content_hash, share_of_each_class
from paircaps.pictures import (
    MAX_PIXELS,
    PILLOW_MOST,
    SUFFIXES,
    UNREAD,
    UNREAD_KIND,
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
_NAMED_MOST = 20
_GO_ON = "on_error='skip' goes past such pictures (in a training: --data.on_error skip)"


class _Picture(NamedTuple):
    path: Path
    label: int


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
    # pictures of the split
    folder = Path(root).expanduser()
    skipped: list[str] | None = [] if on_error == "skip" else None
    classes, pictures = _split_pictures(folder, split, seed, test_fraction, split_by, skipped)
    require_memory(len(pictures), (channels, *size), f"{len(pictures):,} pictures of {folder}")

    def decode(path: Path) -> Tensor:
        return decode_fitted(read_bytes(path), str(path), size, channels, fitting, max_pixels).image

    # decode all, so that one error names every damaged picture
    pictures, images = _all_good(pictures, _in_threads(decode, pictures), skipped)
    if skipped:
        _require_every_class(folder, split, classes, pictures, "no picture of {} can be read in the {} split")
        warnings.warn(f"{folder}, {split} split: {_list_skipped(skipped)}", stacklevel=2)
    labels = torch.tensor([picture.label for picture in pictures])
    info = Info(folder.absolute().name, split, classes, fitting=fitting, skipped=tuple(skipped or ()))
    return StoredDataset(info, torch.stack(images), labels)


def _split_pictures(
    folder: Path, split: str, seed: int, test_fraction: float, split_by: str, skipped: list[str] | None
) -> tuple[tuple[str, ...], list[_Picture]]:
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
    hashed = _in_threads(lambda path: content_hash(read_bytes(path), seed), pictures)
    pictures, hashes = _all_good(pictures, hashed, skipped)
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


def _pictures(folder: Path, classes: tuple[str, ...], required: bool, skipped: list[str] | None) -> list[_Picture]:
    pictures = []
    for label, name in enumerate(classes):
        there = (folder / name).is_dir()
        paths = _picture_files(folder / name, skipped) if there else []
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
        warnings.warn(
            f"{folder}: pictures beside the class folders are passed over: {visible(min(loose))} ...", stacklevel=2
        )
    if not names:
        raise DataError(f"{folder}: no subfolders: give a folder with one subfolder per class")
    return names


def _picture_files(folder: Path, skipped: list[str] | None) -> list[Path]:
    """Pictures in a folder and the folders in it, sorted; those of a kind that is not read are an error, or skipped."""

    def refuse(error: OSError) -> None:
        raise os_data_error("read the folder", error.filename, error)

    found = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for path in (Path(place, name) for name in sorted(names) if not _is_hidden(name)):
            if path.suffix.lower() in UNREAD:
                reason = f"{path}: {UNREAD_KIND}"
                if skipped is None:
                    raise DataError(f"{reason}; {_GO_ON}")
                skipped.append(reason)
            if path.suffix.lower() in SUFFIXES:
                found.append(path)
    return found


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _require_every_class(
    folder: Path, split: str, classes: tuple[str, ...], pictures: Sequence[_Picture], reason: str
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


def _all_good(
    pictures: Sequence[_Picture], results: Sequence[Any], skipped: list[str] | None
) -> tuple[list[_Picture], list[Any]]:
    """Pictures that could be read, and what was read of each; the errors of the others go to ``skipped``.

    Raises:
        DataError: if some could not be read and ``skipped`` is None; it names them.
    """
    bad = [str(result) for result in results if isinstance(result, DataError)]
    if bad and skipped is None:
        raise DataError(*_first_lines(bad), _GO_ON)
    if skipped is not None:
        skipped += bad
    good = [pair for pair in zip(pictures, results, strict=True) if not isinstance(pair[1], DataError)]
    return [picture for picture, _ in good], [result for _, result in good]


def _list_skipped(skipped: Sequence[str]) -> str:
    """The pictures that were skipped, one line each, after how many they are."""
    lines = "".join(f"\n  {visible(line)}" for line in _first_lines(skipped))
    return f"{counted(len(skipped), 'picture')} skipped, which cannot be read:{lines}"


def _first_lines(reasons: Sequence[str]) -> list[str]:
    more = [f"and {len(reasons) - _NAMED_MOST} more"] if len(reasons) > _NAMED_MOST else []
    return [*reasons[:_NAMED_MOST], *more]


def _in_threads(task: Callable[[Path], Any], pictures: Sequence[_Picture]) -> list[Any]:
    """Run a task for all pictures in threads; results in order, a DataError as the result of a damaged one.

    Decoding and hashing release Python's lock.
    """

    def result(picture: _Picture) -> Any:
        try:
            return task(picture.path)
        except DataError as error:
            return error

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        try:
            return list(pool.map(result, pictures))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C the others need no work
            raise


register_dataset(FOLDER, load_folder)
