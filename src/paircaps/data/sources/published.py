"""The six published datasets: files to tensors."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.checks import height_and_width, require_bool, require_choice
from paircaps.data.dataset import Info, StoredDataset, require_memory
from paircaps.data.errors import DataError
from paircaps.data.files.cifar import CifarBatch, read_cifar, read_cifar_tar
from paircaps.data.files.idx import read_idx
from paircaps.data.files.locate import Root, locate, remember_checksum, require_published
from paircaps.data.files.matlab import read_mat
from paircaps.data.files.norb import read_norb
from paircaps.data.files.stream import ByteStream, guarded, open_stream
from paircaps.data.metadata import AFFNIST, CIFAR10, SMALLNORB, SVHN, Metadata

_RESIZE_CHUNK = 2048
_UNVERIFIED_MOST = 2 << 30  # bytes of an array in a file that need not be the published one
_ZIP_MAGIC = b"PK\x03\x04"
_NORB_FACTS: tuple[str, ...] = ("instance", "elevation", "azimuth", "lighting")


def load_idx(card: Metadata) -> Callable[..., StoredDataset]:
    """The loader of MNIST or Fashion-MNIST."""

    def load(split: str, root: Root = None, download: bool = True, verify: bool = True) -> StoredDataset:
        paths = _paths(card, split, root, download, verify)
        images, labels = (
            read_idx(path, rank, file.content_size if verify else None)
            for path, rank, file in zip(paths, (3, 1), card.files[split][0], strict=True)
        )
        _check(card, split, paths, verify)
        return StoredDataset(
            _info(card, split, verify), torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels)
        )

    return load


def load_cifar10(split: str, root: Root = None, download: bool = True, verify: bool = True) -> StoredDataset:
    """CIFAR-10 from its .bin files or the tar they come in."""
    paths = _paths(CIFAR10, split, root, download, verify)
    files = CIFAR10.files[split][0]
    if len(paths) == len(files) and paths[0].name == files[0].name:
        batches = [read_cifar(path) for path in paths]
        names = [str(path) for path in paths]
    else:
        batches = read_cifar_tar(paths[0], [file.name for file in files])
        names = [f"{paths[0]}: {file.name}" for file in files]
    if verify:
        _require_batches(batches, names, [file.md5 for file in files])
    images = np.concatenate([batch.images for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches])
    return StoredDataset(_info(CIFAR10, split, verify), torch.from_numpy(images), torch.from_numpy(labels))


def load_svhn(
    split: str, root: Root = None, download: bool = True, verify: bool = True, extra: bool = False
) -> StoredDataset:
    """SVHN's cropped digits.

    Args:
        split: train, test, or extra by itself.
        root: a folder to look in first, and to download to.
        download: fetch what is not here.
        verify: refuse files that are not the published ones.
        extra: add the 531,131 easier digits to the train split.
    """
    require_bool(extra=extra)
    if extra and split != "train":
        raise ValueError(f"extra digits are added to the train split, not to {split!r}")
    parts = [_svhn_part(part, root, download, verify) for part in ([split, "extra"] if extra else [split])]
    images, labels = (torch.cat(tensors) if extra else tensors[0] for tensors in zip(*parts, strict=True))
    return StoredDataset(_info(SVHN, split, verify), images, labels)


def _svhn_part(split: str, root: Root, download: bool, verify: bool) -> tuple[Tensor, Tensor]:
    (path,) = paths = _paths(SVHN, split, root, download, verify)
    count = SVHN.counts[split]
    most = (count * 3 * 32 * 32, count * 8) if verify else (_UNVERIFIED_MOST, _UNVERIFIED_MOST)
    with open_stream(path) as stream:
        arrays = read_mat(stream, {"X": most[0], "y": most[1]})
        pixels, labels = arrays["X"], arrays["y"].ravel()
        if pixels.dtype != np.uint8 or pixels.shape[:3] != (32, 32, 3) or pixels.ndim > 4:
            raise stream.error(f"X is {pixels.shape} of {pixels.dtype} in place of (32, 32, 3, N) of uint8")
        _require_labels(stream, labels, 1, 10)
    _check(SVHN, split, paths, verify)
    images = np.ascontiguousarray(pixels.reshape(32, 32, 3, -1).transpose(3, 2, 0, 1))
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64) % 10)  # 10 is the digit 0


def load_smallnorb(
    split: str,
    root: Root = None,
    download: bool = True,
    verify: bool = True,
    stereo: str = "images",
    image_size: int | tuple[int, int] | None = None,
) -> StoredDataset:
    """smallNORB; extras: ``instance``, ``elevation``, ``azimuth``, ``lighting``, and ``camera`` where pairs are parted.

    Args:
        split: train or test.
        root: a folder to look in first, and to download to.
        download: fetch what is not here.
        verify: refuse files that are not the published ones.
        stereo: ``"images"``, every pair as two images of one channel; ``"channels"``, as one image of two.
        image_size: scale the 96×96 images down to this; the paper takes 48.
    """
    require_choice("stereo", stereo, ("images", "channels"))
    paths = _paths(SMALLNORB, split, root, download, verify)
    most = [file.content_size if verify else None for file in SMALLNORB.files[split][0]]
    pixels, categories, facts = (
        read_norb(path, rank, limit) for path, rank, limit in zip(paths, (4, 1, 2), most, strict=True)
    )
    if pixels.shape[1] != 2 or facts.shape[1] != 4 or not len(pixels) == len(categories) == len(facts):
        shapes = f"{pixels.shape}, {categories.shape}, {facts.shape}"
        raise DataError(f"{paths[0]}: images, categories and facts do not belong together: {shapes}")
    _check(SMALLNORB, split, paths, verify)
    images, labels = torch.from_numpy(pixels), torch.from_numpy(categories.astype(np.int64))
    columns = dict(zip(_NORB_FACTS, torch.from_numpy(facts).long().T, strict=True))
    if stereo == "images":
        columns = {name: column.repeat_interleave(2) for name, column in columns.items()}
        columns["camera"] = torch.arange(2).repeat(len(images))
        images, labels = images.reshape(-1, 1, *images.shape[2:]), labels.repeat_interleave(2)
    if image_size is not None:
        images = resized(images, height_and_width("image_size", image_size))
    return StoredDataset(_info(SMALLNORB, split, verify), images, labels, columns)


def load_affnist(split: str, root: Root = None, download: bool = True, verify: bool = True) -> StoredDataset:
    """aff-NIST's 32 transformations of MNIST's test digits."""
    (path,) = _paths(AFFNIST, split, root, download, verify)
    count = AFFNIST.counts[split]
    with _open_mat(path) as stream:
        arrays = read_mat(stream, {"affNISTdata.image": count * 40 * 40, "affNISTdata.label_int": count * 8})
        pixels, labels = arrays["affNISTdata.image"], arrays["affNISTdata.label_int"].ravel()
        if pixels.dtype != np.uint8 or pixels.ndim != 2 or len(pixels) != 40 * 40:
            raise stream.error(f"image is {pixels.shape} of {pixels.dtype} in place of (1600, N) of uint8")
        _require_labels(stream, labels, 0, 9)
    if verify:
        remember_checksum(path, AFFNIST)
    images = torch.from_numpy(np.ascontiguousarray(pixels.T)).view(-1, 1, 40, 40)
    return StoredDataset(_info(AFFNIST, split, verify), images, torch.from_numpy(labels.astype(np.int64)))


def resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Images (N, C, H, W) in uint8 at another size; a pixel of a smaller one is the mean of those it covers."""
    require_memory(5 * len(images), (images.shape[1], *size), f"{len(images):,} images of {size[0]}×{size[1]}")
    mode = "area" if size[0] <= images.shape[-2] and size[1] <= images.shape[-1] else "bilinear"
    parts = [F.interpolate(part.float(), size, mode=mode) for part in images.split(_RESIZE_CHUNK)]
    return torch.cat([part.round().to(torch.uint8) for part in parts])


@contextmanager
def _open_mat(path: Path) -> Iterator[ByteStream]:
    """A .mat file, by itself or alone in a zip; nothing is unpacked to disk."""
    with open_stream(path) as stream:
        packed = stream.some(len(_ZIP_MAGIC)) == _ZIP_MAGIC
    with ExitStack() as stack:
        yield stack.enter_context(open_stream(path)) if not packed else _open_member(stack, path)


def _open_member(stack: ExitStack, path: Path) -> ByteStream:
    try:
        archive = stack.enter_context(zipfile.ZipFile(path))
        members = [member for member in archive.infolist() if member.filename.endswith(".mat")]
        if len(members) != 1:
            raise DataError(f"{path}: holds {len(members)} .mat files in place of one")
        if members[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{path}: {members[0].filename} is packed by an unusual method")
        content = stack.enter_context(archive.open(members[0]))
    except (zipfile.BadZipFile, OSError, EOFError, struct.error, RuntimeError, ValueError, OverflowError) as error:
        # damage shows in all these ways; an encrypted member is a RuntimeError
        raise DataError(f"{path}: not a readable zip: {error}") from None
    return ByteStream(f"{path}: {members[0].filename}", guarded(path, content.read), members[0].file_size)


def _paths(card: Metadata, split: str, root: Root, download: bool, verify: bool) -> list[Path]:
    require_bool(download=download, verify=verify)
    require_choice(f"split of {card.name}", split, tuple(card.files))
    return locate(card, split, root, download)


def _check(card: Metadata, split: str, paths: list[Path], verify: bool) -> None:
    if verify:
        for path, file in zip(paths, card.files[split][0], strict=True):
            require_published(path, file)


def _require_labels(stream: ByteStream, labels: np.ndarray, least: int, most: int) -> None:
    """Labels that MATLAB may have stored as any kind of number."""
    right = (labels >= least) & (labels <= most) & (labels == np.floor(labels))
    if not right.all():
        raise stream.error(f"labels must be {least} to {most}, got {labels[~right][0]}")


def _info(card: Metadata, split: str, verified: bool) -> Info:
    return Info(card.name, split, card.classes, "" if verified else "files not compared with the published ones")


def _require_batches(batches: list[CifarBatch], names: list[str], sums: list[str | None]) -> None:
    for batch, name, md5 in zip(batches, names, sums, strict=True):
        if batch.md5 != md5:
            raise DataError(f"{name}: damaged, or not the published file: its md5 is {batch.md5}, should be {md5}")
