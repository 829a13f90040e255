"""The seven synthetic datasets of digits: metadata, reader and registration.

Each takes its digits from glyphs or MNIST and draws them on a canvas: moved, in any pose, or two over each other.
"""

from __future__ import annotations

from collections.abc import Callable

from paircaps._utils.checks import require_choice, require_not_negative
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.files.locate import Root
from paircaps.data.metadata import DIGITS, ON_DARK, Metadata
from paircaps.data.registry import register_dataset
from paircaps.data.sources.mnist import MNIST, mnist_reader
from paircaps.data.synthetic.dataset import (
    AffineDigits,
    DrawingRule,
    OverlappingDigits,
    SyntheticDataset,
    TranslatedDigits,
    canvas,
)
from paircaps.data.synthetic.glyphs import upright_glyphs
from paircaps.data.synthetic.poses import PoseRange
from paircaps.data.synthetic.warp import Size

Factory = Callable[..., SyntheticDataset]
"""Function of a split, a root and options."""

_FONT_LICENCES = "of the fonts: Bitstream Vera, STIX (OFL) and Computer Modern (BaKoMa)"
_NO_CITATION = "made by paircaps; no citation needed"
_GLYPHS = "glyphs"
_load_mnist = mnist_reader(MNIST)


def _of_glyphs(name: str, title: str, size: int) -> Metadata:
    counts = {"train": 10_000, "test": 2_000}
    return Metadata(name, title, counts, (1, size, size), DIGITS, _FONT_LICENCES, _NO_CITATION, base=_GLYPHS)


def _of_mnist(name: str, title: str, size: int, stand_in: str | None = None) -> Metadata:
    licence, shape = f"{MNIST.licence}, as {MNIST.name}", (1, size, size)
    return Metadata(
        name, title, MNIST.counts, shape, DIGITS, licence, MNIST.citation, base=MNIST.name, stand_in=stand_in
    )


def translated_digits(metadata: Metadata) -> Factory:
    """Factory of digits placed at random by whole pixels."""

    def load(
        split: str,
        root: Root = None,
        seed: int = 0,
        length: int | None = None,
        fresh: bool = False,
        image_size: Size = metadata.shape[1],
        download: bool = True,
        verify: bool = True,
    ) -> SyntheticDataset:
        digits = _load_digits(metadata, split, root, download, verify)
        return _dataset(metadata, digits, TranslatedDigits(canvas(image_size, digits)), length, seed, fresh)

    return load


def affine_digits(metadata: Metadata, ranges: PoseRange) -> Factory:
    """Factory of digits turned, scaled, sheared and put anywhere they fit."""

    def load(
        split: str,
        root: Root = None,
        seed: int = 0,
        length: int | None = None,
        fresh: bool = False,
        image_size: Size = metadata.shape[1],
        rotation: float = ranges.rotation,
        scale: tuple[float, float] = ranges.scale,
        shear: float = ranges.shear,
        download: bool = True,
        verify: bool = True,
    ) -> SyntheticDataset:
        digits = _load_digits(metadata, split, root, download, verify)
        drawing = AffineDigits(canvas(image_size, digits), PoseRange(rotation, scale, shear))
        return _dataset(metadata, digits, drawing, length, seed, fresh)

    return load


def overlapping_digits(metadata: Metadata) -> Factory:
    """Factory of two digits over each other."""

    def load(
        split: str,
        root: Root = None,
        seed: int = 0,
        length: int | None = None,
        fresh: bool = False,
        image_size: Size = metadata.shape[1],
        shift: int = 4,
        download: bool = True,
        verify: bool = True,
    ) -> SyntheticDataset:
        require_not_negative(shift=shift)
        digits = _load_digits(metadata, split, root, download, verify)
        return _dataset(metadata, digits, OverlappingDigits(canvas(image_size, digits), shift), length, seed, fresh)

    return load


def _load_digits(metadata: Metadata, split: str, root: Root, download: bool, verify: bool) -> StoredDataset:
    """Digits to draw from: glyphs are always there, MNIST has to be found or fetched."""
    require_choice(f"split of {metadata.name}", split, tuple(metadata.counts))
    return _load_mnist(split, root, download, verify) if metadata.base == MNIST.name else upright_glyphs(split)


def _dataset(
    metadata: Metadata, digits: StoredDataset, drawing: DrawingRule, length: int | None, seed: int, fresh: bool
) -> SyntheticDataset:
    split = digits.info.split
    notes = [f"a stand-in for {metadata.stand_in}"] if metadata.stand_in else []
    if metadata.base == MNIST.name and digits.info.note:
        notes.append(digits.info.note)
    info = Info(metadata.name, split, metadata.classes, "; ".join(notes), ON_DARK)
    return SyntheticDataset(info, digits, drawing, metadata.counts[split] if length is None else length, seed, fresh)


def _register(factory: Callable[..., Factory], metadata: Metadata, *settings: PoseRange) -> None:
    register_dataset(metadata.name, factory(metadata, *settings), metadata)


_register(
    affine_digits,
    _of_glyphs(_GLYPHS, "digits of Matplotlib's fonts in many poses: the default, nothing to download", 28),
    PoseRange(rotation=30.0, scale=(0.6, 1.0), shear=0.2),
)
_register(translated_digits, _of_glyphs("translated-glyphs", "glyphs placed at random on 40×40", 40))
_register(
    affine_digits,
    _of_glyphs("affine-glyphs", "glyphs turned, scaled, sheared and placed inside 40×40", 40),
    PoseRange(),
)
_register(overlapping_digits, _of_glyphs("multi-glyphs", "two glyphs of different digits over each other", 36))
_register(
    translated_digits, _of_mnist("translated-mnist", "MNIST placed at random on 40×40: Table 3's training set", 40)
)
_register(
    affine_digits,
    _of_mnist("affine-mnist", "MNIST turned, scaled, sheared and placed inside 40×40", 40, stand_in="aff-NIST"),
    PoseRange(),
)
_register(
    overlapping_digits,
    _of_mnist("multi-mnist", "two MNIST digits of different classes over each other: Table 5's set", 36),
)
