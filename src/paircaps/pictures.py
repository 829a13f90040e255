"""Pictures of any format and size as tensors of a given size, within bounded memory.

:class:`Fitting` says how; a dataset of pictures and a network have one, so that a picture that a network was trained on
and the same picture given to it later become the same tensor.
"""

from __future__ import annotations

import io
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from paircaps._utils.checks import height_and_width, require_choice, require_memory, require_whole, require_within
from paircaps._utils.extras import require_extra
from paircaps._utils.files import file_size
from paircaps.errors import DataError, os_data_error

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "FittedPicture",
    "Fitting",
    "PictureSource",
    "decode_fitted",
    "decode_picture",
    "find_pictures",
    "fit_picture",
]

SUFFIXES = {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".webp"}
UNREAD = {".gif", ".tif", ".tiff", ".svg", ".heic", ".heif", ".avif", ".jxl", ".jp2", ".ico", ".psd", ".tga"}
"""Suffixes of picture formats that are not read; such a file among the pictures is an error."""
UNREAD_KIND = "pictures of this kind are not read; convert it to PNG, JPEG, BMP or WebP"

MAX_PIXELS = 64_000_000
PILLOW_MOST = 178_956_970
"""Pillow itself refuses larger pictures."""

DAMAGED = (OSError, ValueError, SyntaxError, EOFError, struct.error, IndexError, TypeError, OverflowError)
"""Errors in which Pillow's decoders complain of damaged files."""

_FILE_MOST = 256 << 20
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
_DETAIL = 4
"""A picture is first averaged down to this many times the wanted size, then resized."""

_LARGE, _STRIP, _LONGEST = 1 << 20, 1 << 18, 1 << 15
_ORIENTATION = 0x0112
_SMALL_PIXELS = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
"""Bytes of a pixel in Pillow's memory, where they are not 4."""

_DECODER_PIXELS = {"WEBP": 12}
"""Bytes of a pixel that a decoder needs beside that: two canvases and their copy."""

SIXTEEN_BIT = ("I", "I;16", "I;16B", "I;16L", "I;16N")

STANDARD_INPUT = "-"
"""Name of a picture that comes through standard input."""

Fit = Literal["crop", "pad", "stretch"]
FITS: tuple[Fit, ...] = ("crop", "pad", "stretch")
Inversion = Literal["never", "always", "light"]
INVERSIONS: tuple[Inversion, ...] = ("never", "always", "light")
_EDGES = 32
"""Side to which a picture is reduced before its edges, two pixels wide there, are looked at."""


@dataclass(frozen=True)
class Fitting:
    """How a picture of any size and colour is fitted to an image size.

    Args:
        fit: what happens to a picture of another aspect ratio: ``"crop"`` what is too long, ``"pad"`` with black, or
            ``"stretch"``.
        background: grey level 0..255 behind transparent pixels.
        invert: whether dark and light are exchanged: ``"never"``, ``"always"``, or of pictures that are ``"light"`` at
            their edges, for networks that know light digits on dark ground.
    """

    fit: Fit = "pad"
    background: int = 0
    invert: Inversion = "never"

    def __post_init__(self) -> None:
        require_choice("fit", self.fit, FITS)
        require_choice("invert", self.invert, INVERSIONS)
        require_whole(background=self.background)
        require_within("background", self.background, 0, 255)

    def changed(self, fit: Fit | None = None, invert: bool | None = None) -> Fitting:
        """Fitting with another fit, or with an inversion that does not depend on the picture.

        Args:
            fit: new fit; None keeps what there is.
            invert: whether dark and light are exchanged; None keeps what there is.
        """
        inversion = self.invert if invert is None else "always" if invert else "never"
        return replace(self, fit=fit or self.fit, invert=inversion)


@dataclass(frozen=True)
class FittedPicture:
    """A picture as a tensor of the size that was asked for.

    Args:
        image: (C, H, W) in uint8.
        inverted: whether dark and light were exchanged.
    """

    image: Tensor
    inverted: bool


@dataclass(frozen=True)
class PictureSource:
    """A picture that is read when it is needed.

    Args:
        name: name of the picture in messages.
        read: function that returns the bytes of its file.
    """

    name: str
    read: Callable[[], bytes]


def find_pictures(places: Iterable[str]) -> Iterator[PictureSource]:
    """Find pictures: files, all pictures in folders and their subfolders, and standard input (``-``).

    A file that does not exist gives a source too, which raises a DataError when it is read.

    Args:
        places: paths of files and folders, or ``-``.

    Returns:
        the pictures, those of a folder in the order of their names; none is read yet.
    """
    for place in places:
        path = Path(place).expanduser()
        if place == STANDARD_INPUT:
            yield PictureSource("standard input", _read_standard_input)
        elif path.is_dir():
            yield from _in_folder(path)
        else:
            yield PictureSource(str(path), lambda path=path: read_bytes(path))


def _in_folder(folder: Path) -> Iterator[PictureSource]:
    known = SUFFIXES | UNREAD
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in known and path.is_file())
    if not found:
        yield PictureSource(str(folder), lambda: _refuse(f"{folder}: no picture in this folder"))
    for path in found:
        if path.suffix.lower() in SUFFIXES:
            yield PictureSource(str(path), lambda path=path: read_bytes(path))
        else:  # not left out without a word
            yield PictureSource(str(path), lambda path=path: _refuse(f"{path}: {UNREAD_KIND}"))


def _refuse(reason: str) -> bytes:
    raise DataError(reason)


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        raise DataError("standard input: closed")
    try:
        content = sys.stdin.buffer.read(_FILE_MOST + 1)
    except OSError as error:
        raise os_data_error("read", "standard input", error) from None
    if len(content) > _FILE_MOST:
        raise DataError(f"standard input: more bytes than a picture has, {_FILE_MOST:,} at most")
    return content


def read_bytes(path: Path) -> bytes:
    """Content of a picture file; a DataError if it is too large for one."""
    size = file_size(path)
    if size > _FILE_MOST:
        raise DataError(f"{path}: {size:,} bytes are too many for a picture, {_FILE_MOST:,} at most")
    try:
        return path.read_bytes()
    except OSError as error:
        raise os_data_error("read", path, error) from None


def decode_picture(
    content: bytes,
    name: str,
    size: int | tuple[int, int],
    channels: int = 3,
    fit: Fit = "crop",
    background: int = 255,
    max_pixels: int = MAX_PIXELS,
    max_memory: int | None = None,
) -> Tensor:
    """Decode the content of a picture file to a tensor.

    Args:
        content: bytes of a PNG, JPEG, BMP or WebP file, whatever its name says; of an animation, the first picture.
        name: name of the picture in messages.
        size: a side, or (height, width).
        channels: 1 for grey, 3 for colour.
        fit: how a picture of another aspect is fitted: ``"crop"`` what is too long, ``"pad"`` with black, or
            ``"stretch"``.
        background: grey level behind transparent pixels.
        max_pixels: most pixels of the picture in its file.
        max_memory: most bytes that decoding may take; no bound without it.
    """
    return decode_fitted(content, name, size, channels, Fitting(fit, background), max_pixels, max_memory).image


def decode_fitted(
    content: bytes,
    name: str,
    size: int | tuple[int, int],
    channels: int,
    fitting: Fitting,
    max_pixels: int = MAX_PIXELS,
    max_memory: int | None = None,
) -> FittedPicture:
    """Decode the content of a picture file to a tensor, as a dataset or a network fits it.

    Args:
        content: bytes of the file; see :func:`decode_picture`.
        name: name of the picture in messages.
        size: a side, or (height, width).
        channels: 1 for grey, 3 for colour.
        fitting: how the picture is fitted to the size.
        max_pixels: most pixels of the picture in its file.
        max_memory: most bytes that decoding may take; no bound without it.

    Raises:
        DataError: if it cannot be decoded.
    """
    require_extra("reading pictures", "PIL")
    from PIL import Image, UnidentifiedImageError

    # arguments
    size = height_and_width("size", size)
    require_choice("channels", channels, (1, 3))
    require_memory(1, (channels, *size), f"a picture of {size[0]}×{size[1]}")
    require_within("max_pixels", max_pixels, 1, PILLOW_MOST)
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
            # the header alone is read so far: refuse what is too large before it is decoded
            if picture.width * picture.height > max_pixels:
                raise _too_large(name, f"{picture.width}×{picture.height}", max_pixels)
            whole = picture.width * picture.height
            # a large JPEG is decoded at a fraction of its size
            picture.draft(None, (_DETAIL * size[1], _DETAIL * size[0]))
            if max_memory is not None:
                _require_memory_for(picture, whole, name, max_memory)
            # decode and scale
            return fit_picture(picture, size, channels, fitting)
    except UnidentifiedImageError:
        raise DataError(f"{name}: not a PNG, JPEG, BMP or WebP picture") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        counted = re.search(r"\d+", str(error))  # Pillow refuses it before we can look
        raise _too_large(name, f"{int(counted[0]):,}" if counted else "so many", max_pixels) from None
    except MemoryError:
        raise DataError(f"{name}: too large for the memory that is left") from None
    except DAMAGED as error:
        raise DataError(f"{name}: damaged picture: {error}") from None


def fit_picture(picture: Image.Image, size: tuple[int, int], channels: int, fitting: Fitting) -> FittedPicture:
    """Fit a picture that Pillow has opened.

    Dark and light are exchanged before the picture is padded: the padding is black in any case.

    Args:
        picture: an image of Pillow.
        size: (height, width).
        channels: 1 for grey, 3 for colour.
        fitting: how the picture is fitted to the size.
    """
    from PIL import ImageOps

    # transparent pixels have the background's grey level in the end, also if the picture is inverted
    background = 255 - fitting.background if fitting.invert == "always" else fitting.background
    small = _small_enough(picture, max(size), channels, background)
    inverted = fitting.invert == "always" or (fitting.invert == "light" and _is_light(small))
    return FittedPicture(as_tensor(fitted(ImageOps.invert(small) if inverted else small, size, fitting.fit)), inverted)


def upright_size(content: bytes) -> tuple[int, int]:
    """Width and height of a picture file as it is shown: turned as its EXIF orientation says.

    Args:
        content: bytes of a picture file that can be decoded.
    """
    from PIL import Image

    with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
        on_its_side = picture.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
        return (picture.height, picture.width) if on_its_side else (picture.width, picture.height)


def _is_light(picture: Image.Image) -> bool:
    """True if a picture is light at its edges, as dark ink on paper is."""
    from PIL import Image

    grey = np.asarray(picture.convert("L").resize((_EDGES, _EDGES), Image.Resampling.BOX), dtype=np.float64)
    inner = grey[2:-2, 2:-2]
    return (grey.sum() - inner.sum()) / (grey.size - inner.size) > 127.5


def _too_large(name: str, seen: str, most: int) -> DataError:
    return DataError(f"{name}: {seen} pixels are too many, {most:,} at most")


def _require_memory_for(picture: Image.Image, whole: int, name: str, most: int) -> None:
    """Raise a DataError for a picture of ``whole`` pixels in its file whose decoding takes more than ``most`` bytes."""
    if max(picture.size) > _LONGEST:
        raise DataError(
            f"{name}: {picture.width}×{picture.height} is too long here, a side has {_LONGEST:,} pixels at most"
        )
    bytes_a_pixel = _SMALL_PIXELS.get(picture.mode, 4) + _DECODER_PIXELS.get(picture.format or "", 0)
    stored = picture.width * picture.height * bytes_a_pixel
    if "progressive" in picture.info:  # then libjpeg holds all coefficients, of 16 bits each, at full size
        stored += 2 * len(picture.getbands()) * whole
    if stored > most:
        raise DataError(
            f"{name}: {whole:,} pixels are too many for a {picture.format} picture here, "
            f"about {int(whole * most / stored):,} at most"
        )


def _small_enough(picture: Image.Image, side: int, channels: int, background: int) -> Image.Image:
    """Make a picture upright, opaque and eight bits a channel; average a large one down, strip by strip.

    Strips keep the memory beside the decoded picture itself small.
    """
    from PIL import Image, ImageOps

    if picture.width * picture.height <= _LARGE:
        return eight_bit(picture, channels, background)
    across, down = (max(1, length // (_DETAIL * side)) for length in picture.size)
    size = -(-picture.width // across), -(-picture.height // down)
    small = Image.new("L" if channels == 1 else "RGB", size)
    rows = max(1, _STRIP // (picture.width * down)) * down
    for top in range(0, picture.height, rows):
        strip = picture.crop((0, top, picture.width, min(top + rows, picture.height)))
        small.paste(opaque(strip, channels, background).reduce((across, down)), (0, top // down))
    exif = Image.Exif()
    exif[_ORIENTATION] = picture.getexif().get(_ORIENTATION, 1)
    small.info["exif"] = exif.tobytes()
    return ImageOps.exif_transpose(small)


def eight_bit(picture: Image.Image, channels: int, background: int = 255) -> Image.Image:
    """Make a picture upright, opaque and eight bits a channel, grey or colour."""
    from PIL import ImageOps

    return opaque(ImageOps.exif_transpose(picture), channels, background)


def opaque(picture: Image.Image, channels: int, background: int = 255) -> Image.Image:
    """Make a picture opaque and eight bits a channel, grey or colour; its EXIF orientation is not applied."""
    from PIL import Image

    if picture.mode in SIXTEEN_BIT:
        values = np.asarray(picture).astype(np.int64).clip(0, 65535)
        seen_through = values == picture.info.get("transparency", -1)
        picture = Image.fromarray(np.where(seen_through, background, (values + 128) // 257).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        behind = Image.new("RGBA", picture.size, (background, background, background, 255))
        picture = Image.alpha_composite(behind, picture)
    if channels == 3:
        return picture.convert("RGB")
    # CMYK has no road to grey but over colour
    return (picture if picture.mode == "L" else picture.convert("RGB")).convert("L")


def fitted(picture: Image.Image, size: tuple[int, int], fit: Fit, *, nearest: bool = False) -> Image.Image:
    """Fit an image of Pillow into (height, width), smoothly, or with the nearest pixel where values are no colours.

    Args:
        picture: image of Pillow.
        size: (height, width).
        fit: how a picture of another aspect is fitted.
        nearest: whether every new pixel is one of the old ones, as masks need it.
    """
    from PIL import Image, ImageOps

    # Pillow's bilinear averages over all pixels it covers
    wanted, smooth = (size[1], size[0]), Image.Resampling.NEAREST if nearest else Image.Resampling.BILINEAR
    if fit == "crop":
        return ImageOps.fit(picture, wanted, smooth)
    if fit == "pad":
        scale = min(wanted[0] / picture.width, wanted[1] / picture.height)
        inner = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))  # a line stays a line
        return ImageOps.pad(picture.resize(inner, smooth), wanted, Image.Resampling.NEAREST)
    return picture.resize(wanted, smooth)


def as_tensor(picture: Image.Image) -> Tensor:
    """Tensor (C, H, W) of a grey or colour picture of eight bits a channel."""
    pixels = np.array(picture)
    return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1).contiguous()
