"""Datasets by name, with their metadata, and the one function that turns a name, a path or an object into a dataset."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path

import torch

from paircaps._utils.registry import Registry, call_with_options
from paircaps.data.dataset import ImageDataset
from paircaps.data.errors import DataError, wrong_input_as_data_error
from paircaps.data.metadata import Metadata
from paircaps.data.wrap import wrap_dataset

FOLDER = "folder"
"""Name under which the reader of folders of pictures is registered."""

_DATASETS: Registry[ImageDataset] = Registry("dataset")
_METADATA: dict[str, Metadata] = {}


def register_dataset(name: str, factory: Callable[..., ImageDataset], metadata: Metadata | None = None) -> None:
    """Make a dataset known by name.

    Args:
        name: new name, for ``load_dataset(name)``.
        factory: function of ``split``, ``root`` and options that returns the dataset.
        metadata: what ``paircaps data list`` says of it; without it, who registered it.

    Raises:
        ValueError: if the name is taken, or the metadata has another name.
    """
    if metadata is not None and metadata.name != name:
        raise ValueError(f"dataset {name!r} was given the metadata of {metadata.name!r}: the names must be the same")
    _DATASETS.register(name, factory)
    if metadata is not None:
        _METADATA[name] = metadata


def list_datasets() -> list[str]:
    """Names of all registered datasets.

    >>> {"mnist", "cifar10", "glyphs"} <= set(list_datasets())
    True
    """
    return _DATASETS.names()


def all_metadata() -> list[Metadata]:
    """Metadata of all datasets that have some, those of plug-ins too, in order of registration."""
    list_datasets()  # imports the plug-ins
    return list(_METADATA.values())


def dataset_metadata(name: str | Path) -> Metadata | None:
    """Metadata of a dataset: its title, sizes, files, licence and citation.

    Args:
        name: name of the dataset.

    Returns:
        the metadata; None for a dataset registered without, for a folder of pictures and for an unknown name.
    """
    return _METADATA[str(name)] if str(name) in _DATASETS and str(name) in _METADATA else None


def require_metadata(name: str) -> Metadata:
    """Metadata of a dataset; a DataError where there is none."""
    with wrong_input_as_data_error():
        require_known(name)
    if name not in _METADATA:
        raise DataError(f"dataset {name!r}, registered by {registered_by(name)}, has no metadata")
    return _METADATA[name]


def registered_by(name: str) -> str:
    """Name of the module that a dataset's factory is from."""
    factory = _DATASETS.factory(name)
    return getattr(factory, "__module__", None) or type(factory).__module__


def source_metadata(metadata: Metadata) -> Metadata:
    """Metadata of the dataset whose files another one is made from; of one with files of its own, itself."""
    if metadata.files or metadata.base is None:
        return metadata
    return require_metadata(metadata.base)


def offline_options(name: str) -> dict[str, object]:
    """Options that keep a dataset from being downloaded; none for one that takes no ``download``, or for a path."""
    if name not in _DATASETS or "download" not in inspect.signature(_DATASETS.factory(name)).parameters:
        return {}
    return {"download": False}


def folder_path(name: str | Path, *, bare: bool = False) -> Path | None:
    """Path of a folder of pictures, or None where ``name`` is the name of a dataset.

    This is the only place that tells the two apart: a ``Path`` is a path, and so is text with a ``/`` in it.

    Args:
        name: path or text to decide about.
        bare: text without a ``/`` is a path too if there is a folder of that name and no dataset. Commands allow this
            for convenience; recipes do not, because a new folder must not change what a recipe means.
    """
    if not isinstance(name, str | Path):
        return None
    path = Path(name).expanduser()
    if isinstance(name, Path) or os.sep in name:
        return path
    return path if bare and name and name not in _DATASETS and path.is_dir() else None


def load_dataset(
    name: str | Path | torch.utils.data.Dataset, split: str = "train", root: Path | str | None = None, **options: object
) -> ImageDataset:
    """Load a dataset by name, the pictures of a folder by its path, or the images of a torch Dataset.

    >>> digits = load_dataset("glyphs", "test")  # drawn here: nothing is downloaded
    >>> digits
    <glyphs test: 2,000 images of 28×28×1, 10 classes>
    >>> image, label = digits[0]
    >>> image.shape, image.dtype
    (torch.Size([1, 28, 28]), torch.float32)

    Args:
        name: one of ``list_datasets()``; a path (text with a ``/`` in it is one); or an object: an ``ImageDataset`` is
            returned as it is, any other torch Dataset of images and labels goes through ``wrap_dataset``.
        split: ``"train"`` or ``"test"``.
        root: folder to look for its files in, before $PAIRCAPS_DATA and the user's cache, and to download to.
        options: options of that dataset, such as ``seed=1`` of synthetic ones, ``download=False`` of published ones.

    Returns:
        the dataset, of which a :class:`paircaps.data.Loader` or a DataLoader of PyTorch gives batches.

    Raises:
        ValueError: if there is no dataset of that name.
        TypeError: if the dataset has no such option.
        DataError: if its files are missing or damaged, or cannot be downloaded.
    """
    if not isinstance(split, str):
        raise TypeError(f"split must be a name, 'train' or 'test', got {split!r}")
    if isinstance(name, torch.utils.data.Dataset):
        return _from_object(name, split, root, options)
    folder = folder_path(name)
    if folder is not None:
        if root is not None:
            raise TypeError(f"a folder of pictures is given as name or as root, not both: {name} and {root}")
        name, root = FOLDER, folder
    require_known(name)
    arguments: dict[str, object] = {"split": split, "root": root}
    return call_with_options(f"dataset {name!r}", _DATASETS.factory(str(name)), arguments, options)


def _from_object(
    dataset: torch.utils.data.Dataset, split: str, root: Path | str | None, options: dict[str, object]
) -> ImageDataset:
    if root is not None:
        raise TypeError(f"a dataset that is loaded already has no root, got {root}")
    if not isinstance(dataset, ImageDataset):
        arguments: dict[str, object] = {"dataset": dataset, "split": split, "name": type(dataset).__name__}
        return call_with_options("a dataset to wrap", wrap_dataset, arguments, options)
    if options:
        raise TypeError(f"a dataset that is loaded already takes no options, got {', '.join(options)}")
    return dataset


def require_known(name: object) -> None:
    """Refuse an unknown name, with the known ones, and a hint if it is that of a folder."""
    try:
        _DATASETS.factory(name)  # pyright: ignore[reportArgumentType]  # it refuses what is no text
    except ValueError as error:
        hint = f". For the folder of that name write './{name}'" if name and Path(str(name)).is_dir() else ""
        raise ValueError(f"{error}, or a path with a / in it{hint}") from None
