"""Folders of pictures and of their masks, for segmentation: reader.

cells/*.jpg  cells-masks/*.png  cells-masks/classes.txt   a share of the pictures goes to the test split
cells/train/*.jpg  cells/test/*.jpg  cells-masks/train/*.png  cells-masks/test/*.png   split as the folders say

A mask is an indexed PNG of the size of its picture: index 0 is nothing, index k the k-th class.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paircaps._utils.checks import require_choice, require_memory
from paircaps.data.dataset import MASK_INDEX, Info, StoredDataset
from paircaps.data.errors import DataError, os_data_error
from paircaps.data.files.picture_files import LabelledPicture, all_good, in_threads, list_skipped, picture_files
from paircaps.data.split import content_hash, share_of_each_class
from paircaps.pictures import (
    DAMAGED,
    PILLOW_MOST,
    SUFFIXES,
    Fit,
    Fitting,
    decode_fitted,
    fitted,
    read_bytes,
    upright_size,
)

SPLITS = ("train", "test")
CLASSES_FILE = "classes.txt"
"""File in the folder of masks with the name of a class on each line, that of index 1 first."""

_MOST_CLASSES = 255
_INDEXED = "P"
"""Mode of an indexed PNG in Pillow."""


@dataclass(frozen=True)
class MaskedFolders:
    """Pictures with their masks, and how they are read.

    Args:
        pictures: folder of the pictures.
        masks: folder of the masks.
        size: (height, width) that both are scaled to.
        channels: 1 for grey, 3 for colour.
        fitting: how a picture is fitted to the size; its mask is fitted alike.
        max_pixels: most pixels of a picture.
    """

    pictures: Path
    masks: Path
    size: tuple[int, int]
    channels: int
    fitting: Fitting
    max_pixels: int

    def mask_path(self, picture: Path) -> Path:
        """Path of the mask of a picture: the same name in the folder of masks, with the ending .png or .PNG."""
        path = (self.masks / picture.relative_to(self.pictures)).with_suffix(".png")
        loud = path.with_suffix(".PNG")
        return loud if loud.is_file() and not path.is_file() else path

    def read(self, picture: Path, classes: int) -> tuple[Tensor, Tensor]:
        """Read a picture and its mask: (C, H, W), and (H, W) of indices, both in uint8.

        Raises:
            DataError: if one cannot be read, or the mask does not belong to the picture; it names the file.
        """
        content, path = read_bytes(picture), self.mask_path(picture)
        image = decode_fitted(content, str(picture), self.size, self.channels, self.fitting, self.max_pixels).image
        if not path.is_file():
            raise DataError(f"{path}: no such file, the mask of {picture}")
        whole = decode_mask(read_bytes(path), str(path), classes, upright_size(content), str(picture))
        return image, fit_mask(whole, self.size, self.fitting.fit)


def decode_mask(content: bytes, name: str, classes: int, size: tuple[int, int], picture: str) -> np.ndarray:
    """Decode an indexed PNG to the index of each pixel, (height, width) in uint8.

    Args:
        content: bytes of the file.
        name: name of the file in messages.
        classes: number of classes, the largest index there may be.
        size: (width, height) of its picture, which the mask must have.
        picture: name of the picture in messages.

    Raises:
        DataError: if it is no indexed PNG, has another size, is damaged, or has another index.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as mask:
            if mask.mode != _INDEXED:
                raise DataError(
                    f"{name}: not an indexed PNG: a mask has a palette, whose index is the class of a pixel"
                )
            # the header alone is read so far: what is far larger than its picture is not decoded
            if mask.size != size:
                raise DataError(
                    f"{name}: its size is {mask.width}×{mask.height}, that of its picture {picture} is "
                    f"{size[0]}×{size[1]}"
                )
            index = np.array(mask)
    except UnidentifiedImageError:
        raise DataError(f"{name}: not an indexed PNG") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):  # Pillow refuses it before we can look
        raise DataError(
            f"{name}: its size is over {PILLOW_MOST:,} pixels, that of its picture {picture} is {size[0]}×{size[1]}"
        ) from None
    except DAMAGED as error:
        raise DataError(f"{name}: damaged mask: {error}") from None
    if index.max(initial=0) > classes:
        raise DataError(
            f"{name}: unknown index {index.max()}: there are {classes} classes, with the indices 1 to {classes}, and 0 "
            "for nothing"
        )
    return index


def fit_mask(index: np.ndarray, size: tuple[int, int], fit: Fit) -> Tensor:
    """Fit a mask to a size as its picture is fitted, with the nearest pixel: (height, width) to (H, W) in uint8."""
    from PIL import Image

    return torch.from_numpy(np.array(fitted(Image.fromarray(index), size, fit, nearest=True)))


def load_masked(
    places: MaskedFolders,
    split: str,
    classes: Sequence[str] | None,
    seed: int,
    test_fraction: float,
    skipped: list[str] | None,
) -> StoredDataset:
    """Read the pictures of a split with their masks; the label of a picture is the class with the most pixels.

    Args:
        places: folders, and how their files are read.
        split: train or test; or all.
        classes: names of the classes; None for the lines of ``classes.txt``.
        seed: seed of the split, where the folder has no train/ and test/.
        test_fraction: share of the pictures that goes to the test split there.
        skipped: list that receives the pictures that cannot be read; None raises an error that names them.
    """
    names = _class_names(places.masks, classes)
    divided = all((places.pictures / part).is_dir() for part in SPLITS)
    if divided:
        require_choice(f"split of {places.pictures}", split, SPLITS)
    folder = places.pictures / split if divided else places.pictures
    # read all, so that one error names every bad file
    found = [LabelledPicture(path, 0) for path in _outside(picture_files(folder, skipped), places.masks)]
    if not found:
        raise DataError(f"{folder}: no picture in it ({', '.join(sorted(SUFFIXES))})")
    _require_one_picture_each(places, [picture.path for picture in found])
    require_memory(len(found), (places.channels + 1, *places.size), f"{len(found):,} pictures of {folder}")
    found, read = all_good(found, in_threads(lambda path: places.read(path, len(names)), found), skipped)
    pictures = [LabelledPicture(picture.path, _largest(index)) for picture, (_, index) in zip(found, read, strict=True)]
    chosen = list(range(len(pictures)))
    if not divided and split in SPLITS:
        chosen = _of_split(pictures, split, seed, test_fraction)
    if not chosen:
        raise DataError(f"{folder}: no picture is in the {split} split; give more, or folders train/ and test/")
    if skipped:
        warnings.warn(f"{folder}, {split} split: {list_skipped(skipped)}", stacklevel=3)
    info = Info(
        places.pictures.absolute().name,
        split,
        names,
        fitting=places.fitting,
        skipped=tuple(skipped or ()),
        made_for_masks=True,
    )
    images, index = (torch.stack([read[number][part] for number in chosen]) for part in range(2))
    return StoredDataset(info, images, torch.tensor([pictures[number].label for number in chosen]), {MASK_INDEX: index})


def _class_names(masks: Path, classes: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the classes: the option, or the lines of ``classes.txt``."""
    path = masks / CLASSES_FILE
    if not masks.is_dir():
        raise DataError(f"{masks}: no such folder of masks")
    if classes is None:
        try:
            classes = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        except FileNotFoundError:
            raise DataError(
                f"{path}: no such file: it has the name of a class on each line, that of index 1 first; or give the "
                "names as classes=[...] (in a training: data.options.classes)"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise (
                os_data_error("read", path, error)
                if isinstance(error, OSError)
                else DataError(f"{path}: not a text in UTF-8")
            ) from None
    names = (classes,) if isinstance(classes, str) else tuple(str(name) for name in classes)
    if not 1 <= len(names) <= _MOST_CLASSES or len(set(names)) != len(names):
        raise DataError(
            f"{path}: classes must be 1 to {_MOST_CLASSES} different names, got {', '.join(names) or 'none'}"
        )
    return names


def _outside(paths: Sequence[Path], masks: Path) -> list[Path]:
    """Paths that do not lie in the folder of masks, which may be inside that of the pictures."""
    return [path for path in paths if masks.resolve() not in path.resolve().parents]


def _require_one_picture_each(places: MaskedFolders, paths: Sequence[Path]) -> None:
    """Raise an error if two pictures have the same mask, as 7.jpg and 7.png would."""
    first: dict[Path, Path] = {}
    for path in paths:
        mask = places.mask_path(path)
        if mask in first:
            raise DataError(
                f"{mask}: would be the mask of both {first[mask]} and {path}; give one of the pictures another name"
            )
        first[mask] = path


def _largest(index: Tensor) -> int:
    """Class with the most pixels of a mask, (H, W); 0 where there is none."""
    counts = torch.bincount(index.flatten().long(), minlength=2)[1:]
    return int(counts.argmax())


def _of_split(pictures: Sequence[LabelledPicture], split: str, seed: int, test_fraction: float) -> list[int]:
    """Numbers of the pictures of a split: of each class a share goes to the test."""
    hashes = [content_hash(read_bytes(picture.path), seed) for picture in pictures]
    in_test = share_of_each_class([picture.label for picture in pictures], hashes, test_fraction)
    return [number for number, test in enumerate(in_test) if test == (split == "test")]
