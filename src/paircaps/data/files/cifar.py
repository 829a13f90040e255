"""CIFAR-10's binary format: a byte of label and 3×32×32 bytes of pixels per image, in .bin files or a tar of them."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np

from paircaps.data.errors import DataError
from paircaps.data.files.stream import ByteStream, open_stream

SHAPE = (3, 32, 32)
CLASSES = 10
_RECORD = 1 + 3 * 32 * 32
_TAR_MOST = 256 << 20  # the official one unpacks to 184 MB


class CifarBatch(NamedTuple):
    """Content of one file: pixels (N, 3, 32, 32) and labels (N,)."""

    images: np.ndarray
    labels: np.ndarray


def read_cifar(path: Path, md5: str | None = None) -> CifarBatch:
    """Read a .bin file.

    Args:
        path: the file.
        md5: checksum that its content must have, compared before it is parsed; None for any.
    """
    with open_stream(path, _TAR_MOST) as stream:
        return _parse(stream, stream.rest(), md5)


def read_cifar_tar(path: Path, names: list[str], checksums: Mapping[str, str | None] | None = None) -> list[CifarBatch]:
    """Read .bin files out of a tar; nothing is written to disk.

    Args:
        path: the tar, gzipped or not.
        names: names of the .bin files without their folder, in the order they are returned.
        checksums: md5 that each must have by name, compared before it is parsed; None for any.
    """
    checksums = checksums or {}
    found: dict[str, CifarBatch] = {}
    with open_stream(path, _TAR_MOST) as stream:
        try:
            with tarfile.open(fileobj=cast("IO[bytes]", _Forward(stream)), mode="r|") as tar:
                for member in tar:
                    _require_harmless(stream, member)
                    name = member.name.rsplit("/", 1)[-1]
                    if name in names and member.isreg():
                        stream.expect(member.size, member.name)
                        content = tar.extractfile(member)
                        assert content is not None
                        part = ByteStream(f"{path}: {member.name}", content.read, member.size)
                        found[name] = _parse(part, part.take(member.size, "the images"), checksums.get(name))
            stream.drain()  # to the end, where gzip's own checksum is
        except (tarfile.TarError, ValueError, EOFError) as error:  # tarfile lets some ValueErrors of its fields through
            raise stream.error(f"damaged: not a readable tar: {error}") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"{path}: {', '.join(missing)} not inside")
    return [found[name] for name in names]


def _parse(stream: ByteStream, content: bytearray, md5: str | None) -> CifarBatch:
    if md5 is not None and (seen := hashlib.md5(content, usedforsecurity=False).hexdigest()) != md5:
        raise stream.error(f"damaged, or not the published file: its md5 is {seen}, should be {md5}")
    count, rest = divmod(len(content), _RECORD)
    if rest or not count:
        raise stream.error(f"{len(content):,} bytes are not a whole number of images of {_RECORD:,} bytes each")
    records = np.frombuffer(content, np.uint8).reshape(count, _RECORD)
    labels = records[:, 0]
    if labels.max() >= CLASSES:
        raise stream.error(f"image {int(labels.argmax())} has label {labels.max()}, labels are 0 to {CLASSES - 1}")
    return CifarBatch(records[:, 1:].reshape(count, *SHAPE), labels)


def _require_harmless(stream: ByteStream, member: tarfile.TarInfo) -> None:
    """Raise a DataError for links or ``..``: harmless, as nothing goes to disk, but not in the published archive."""
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise stream.error(f"holds {member.name!r}, which would lead out of the folder: not the official archive")
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE) or member.issparse():
        # a sparse file of a few bytes claims, and is read as, any number of zeros
        raise stream.error(f"holds {member.name!r}, a link, device or sparse file: not the official archive")


class _Forward:
    """File object with the one method that tarfile needs to read a stream."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes, fewer only at the end."""
        taken = bytearray()
        while len(taken) < size and (chunk := self._stream.some(size - len(taken))):
            taken += chunk
        return bytes(taken)
