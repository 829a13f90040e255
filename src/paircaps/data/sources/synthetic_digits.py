"""The seven made datasets: which digits, made how, on what canvas."""

from __future__ import annotations

from collections.abc import Callable

from paircaps._utils.checks import require_choice, require_not_negative
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.files.locate import Root
from paircaps.data.metadata import MNIST, Metadata
from paircaps.data.sources.published import load_idx
from paircaps.data.synthetic.dataset import (
    AffineDigits,
    Drawing,
    OverlappingDigits,
    SyntheticDataset,
    TranslatedDigits,
    canvas,
)
from paircaps.data.synthetic.glyphs import upright_glyphs
from paircaps.data.synthetic.poses import PoseRange
from paircaps.data.synthetic.warp import Size

MadeLoader = Callable[..., SyntheticDataset]
_load_mnist = load_idx(MNIST)


def load_translated(card: Metadata) -> MadeLoader:
    """The loader of digits placed at random by whole pixels."""

    def load(
        split: str,
        root: Root = None,
        seed: int = 0,
        length: int | None = None,
        fresh: bool = False,
        image_size: Size = card.shape[1],
        download: bool = True,
        verify: bool = True,
    ) -> SyntheticDataset:
        digits = _digits(card, split, root, download, verify)
        return _make(card, digits, TranslatedDigits(canvas(image_size, digits)), length, seed, fresh)

    return load


def load_affine(card: Metadata, ranges: PoseRange) -> MadeLoader:
    """The loader of digits turned, scaled, sheared and put anywhere they fit."""

    def load(
        split: str,
        root: Root = None,
        seed: int = 0,
        length: int | None = None,
        fresh: bool = False,
        image_size: Size = card.shape[1],
        rotation: float = ranges.rotation,
        scale: tuple[float, float] = ranges.scale,
        shear: float = ranges.shear,
        download: bool = True,
        verify: bool = True,
    ) -> SyntheticDataset:
        digits = _digits(card, split, root, download, verify)
        making = AffineDigits(canvas(image_size, digits), PoseRange(rotation, scale, shear))
        return _make(card, digits, making, length, seed, fresh)

    return load


def load_multi(card: Metadata) -> MadeLoader:
    """The loader of two digits over each other."""

    def load(
        split: str,
        root: Root = None,
        seed: int = 0,
        length: int | None = None,
        fresh: bool = False,
        image_size: Size = card.shape[1],
        shift: int = 4,
        download: bool = True,
        verify: bool = True,
    ) -> SyntheticDataset:
        require_not_negative(shift=shift)
        digits = _digits(card, split, root, download, verify)
        return _make(card, digits, OverlappingDigits(canvas(image_size, digits), shift), length, seed, fresh)

    return load


def _digits(card: Metadata, split: str, root: Root, download: bool, verify: bool) -> StoredDataset:
    """The digits that a made dataset takes: glyphs are always there, MNIST has to be found or fetched."""
    require_choice(f"split of {card.name}", split, tuple(card.counts))
    return _load_mnist(split, root, download, verify) if card.base == MNIST.name else upright_glyphs(split)


def _make(
    card: Metadata, digits: StoredDataset, making: Drawing, length: int | None, seed: int, fresh: bool
) -> SyntheticDataset:
    split = digits.info.split
    notes = [f"a stand-in for {card.stand_in}"] if card.stand_in else []
    if card.base == MNIST.name and digits.info.note:
        notes.append(digits.info.note)
    info = Info(card.name, split, card.classes, "; ".join(notes))
    return SyntheticDataset(info, digits, making, card.counts[split] if length is None else length, seed, fresh)
