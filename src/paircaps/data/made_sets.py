"""The seven made datasets: which digits, made how, on what canvas."""

from __future__ import annotations

from collections.abc import Callable

from paircaps._checks import require_choice, require_not_negative
from paircaps.data.cards import MNIST, Card
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.files import Root
from paircaps.data.glyphs import upright_glyphs
from paircaps.data.made import Affine, MadeDataset, Making, Multi, Translated, canvas
from paircaps.data.official import load_idx
from paircaps.data.poses import PoseRange
from paircaps.data.warp import Size

MadeLoader = Callable[..., MadeDataset]
_load_mnist = load_idx(MNIST)


def load_translated(card: Card) -> MadeLoader:
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
    ) -> MadeDataset:
        digits = _digits(card, split, root, download, verify)
        return _make(card, digits, Translated(canvas(image_size, digits)), length, seed, fresh)

    return load


def load_affine(card: Card, ranges: PoseRange) -> MadeLoader:
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
    ) -> MadeDataset:
        digits = _digits(card, split, root, download, verify)
        making = Affine(canvas(image_size, digits), PoseRange(rotation, scale, shear))
        return _make(card, digits, making, length, seed, fresh)

    return load


def load_multi(card: Card) -> MadeLoader:
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
    ) -> MadeDataset:
        require_not_negative(shift=shift)
        digits = _digits(card, split, root, download, verify)
        return _make(card, digits, Multi(canvas(image_size, digits), shift), length, seed, fresh)

    return load


def _digits(card: Card, split: str, root: Root, download: bool, verify: bool) -> StoredDataset:
    """The digits that a made dataset takes: glyphs are always there, MNIST has to be found or fetched."""
    require_choice(f"split of {card.name}", split, tuple(card.counts))
    return _load_mnist(split, root, download, verify) if card.base == MNIST.name else upright_glyphs(split)


def _make(card: Card, digits: StoredDataset, making: Making, length: int | None, seed: int, fresh: bool) -> MadeDataset:
    split = digits.info.split
    notes = [f"a stand-in for {card.stand_in}"] if card.stand_in else []
    if card.base == MNIST.name and digits.info.note:
        notes.append(digits.info.note)
    info = Info(card.name, split, card.classes, "; ".join(notes))
    return MadeDataset(info, digits, making, card.counts[split] if length is None else length, seed, fresh)
