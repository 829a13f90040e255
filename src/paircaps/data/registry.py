"""Datasets by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from paircaps._utils.registry import Registry, call_with_options
from paircaps.data.dataset import ImageDataset
from paircaps.data.metadata import FASHION_MNIST, METADATA, MNIST
from paircaps.data.sources.folder import load_folder
from paircaps.data.sources.published import load_affnist, load_cifar10, load_idx, load_smallnorb, load_svhn
from paircaps.data.sources.synthetic_digits import load_affine, load_multi, load_translated
from paircaps.data.synthetic.poses import PoseRange

_DATASETS: Registry[ImageDataset] = Registry("dataset")


def register_dataset(name: str, factory: Callable[..., ImageDataset]) -> None:
    """Make a dataset known by name: a function of ``split``, ``root`` and options."""
    _DATASETS.register(name, factory)


def list_datasets() -> list[str]:
    """Names of all registered datasets."""
    return _DATASETS.names()


def load_dataset(
    name: str | Path, split: str = "train", root: Path | str | None = None, **options: object
) -> ImageDataset:
    """A dataset by name, or the pictures of a folder by its path.

    Args:
        name: one of ``list_datasets()``, or a path (of text, one with a ``/`` in it).
        split: ``"train"`` or ``"test"``.
        root: a folder to look for its files in, before $PAIRCAPS_DATA and the user's cache, and to download to.
        options: of that dataset, such as ``seed=1`` of made ones, ``download=False`` of published ones.
    """
    if isinstance(name, Path) or (isinstance(name, str) and os.sep in name):
        if root is not None:
            raise TypeError(f"a folder of pictures is given as name or as root, not both: {name} and {root}")
        name, root = "folder", name
    require_known(name)
    if not isinstance(split, str):
        raise TypeError(f"split must be a name, 'train' or 'test', got {split!r}")
    arguments: dict[str, object] = {"split": split, "root": root}
    return call_with_options(f"dataset {name!r}", _DATASETS.factory(name), arguments, options)


def require_known(name: str) -> None:
    """Refuse an unknown name, with the known ones, and a hint if it is that of a folder."""
    try:
        _DATASETS.factory(name)
    except ValueError as error:
        hint = f". For the folder of that name write './{name}'" if name and Path(name).is_dir() else ""
        raise ValueError(f"{error}, or a path with a / in it{hint}") from None


register_dataset("mnist", load_idx(MNIST))
register_dataset("fashion-mnist", load_idx(FASHION_MNIST))
register_dataset("cifar10", load_cifar10)
register_dataset("svhn", load_svhn)
register_dataset("smallnorb", load_smallnorb)
register_dataset("affnist", load_affnist)
register_dataset("folder", load_folder)
register_dataset("glyphs", load_affine(METADATA["glyphs"], PoseRange(rotation=30.0, scale=(0.6, 1.0), shear=0.2)))
for _digits in ("glyphs", "mnist"):
    register_dataset(f"translated-{_digits}", load_translated(METADATA[f"translated-{_digits}"]))
    register_dataset(f"affine-{_digits}", load_affine(METADATA[f"affine-{_digits}"], PoseRange()))
    register_dataset(f"multi-{_digits}", load_multi(METADATA[f"multi-{_digits}"]))
