"""Files of tensors in the format safetensors, read one tensor at a time into memory that is there already."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from paircaps._utils.files import file_size
from paircaps._utils.words import first_line
from paircaps.errors import DataError, ModelFileError

_MOST_HEADER_BYTES = 2 << 20
"""Bytes of a header; parsed, JSON takes up to thirty times as many. A tensor needs about a hundred."""

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class StoredTensor(NamedTuple):
    """A tensor of a file, as the header describes it.

    Args:
        dtype: kind of its values.
        shape: its shape.
        start: position of its first byte in the file.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def values(self) -> int:
        """Number of its values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.values * self.dtype.itemsize


def read_header(file: BinaryIO, size: int) -> dict[str, StoredTensor]:
    """Read which tensors a file has; their values are not read.

    Args:
        file: the file, opened for reading bytes.
        size: length of the file in bytes.

    Returns:
        the tensors by name, which together fill the file.

    Raises:
        ValueError: if the file has another format, or the tensors do not fill it exactly.
    """
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise ValueError("not in the format safetensors")
    if length > _MOST_HEADER_BYTES:
        raise ValueError(f"a header of {length:,} bytes is too long, {_MOST_HEADER_BYTES:,} at most")
    try:
        header = json.loads(file.read(length))
    except (ValueError, RecursionError):
        raise ValueError("not in the format safetensors") from None
    if not isinstance(header, dict):
        raise ValueError("not in the format safetensors")
    header.pop("__metadata__", None)
    tensors = {name: _stored_tensor(name, entry, 8 + length) for name, entry in header.items()}
    # the tensors lie side by side, from the header to the end
    end = 8 + length
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].nbytes)):
        if tensor.start != end:
            raise ValueError(f"the place of {name!r} in the file is wrong")
        end += tensor.nbytes
    if end != size:
        raise ValueError(f"{size:,} bytes where its tensors have {end:,}")
    return tensors


def _stored_tensor(name: str, entry: object, offset: int) -> StoredTensor:
    """Tensor of an entry of the header; the places of tensors are counted from ``offset``."""
    if not isinstance(entry, dict):
        raise ValueError(f"the header's entry of {name!r} is no table")
    kind = entry.get("dtype")
    shape: Any = entry.get("shape")
    place: Any = entry.get("data_offsets")
    if not isinstance(kind, str) or kind not in _DTYPES:
        raise ValueError(f"{name!r} has values of kind {kind!r}, which are not read")
    if not _is_sizes(shape) or not _is_sizes(place) or len(place) != 2:
        raise ValueError(f"shape or place of {name!r} is damaged")
    tensor = StoredTensor(_DTYPES[kind], tuple(shape), offset + place[0])
    if place[1] - place[0] != tensor.nbytes:
        raise ValueError(f"{name!r} has {place[1] - place[0]:,} bytes where its shape has {tensor.nbytes:,}")
    return tensor


def _is_sizes(value: object) -> bool:
    """True for a list of up to 64 whole numbers that 64 bits can hold."""
    return (
        isinstance(value, list)
        and len(value) <= 64
        and all(type(size) is int and 0 <= size < 1 << 63 for size in value)
    )


def read_tensor(file: BinaryIO, stored: StoredTensor, target: Tensor) -> None:
    """Read the values of a tensor of a file into a tensor on the CPU, without a copy if it has the same layout.

    Args:
        file: the file, opened for reading bytes.
        stored: tensor of the file.
        target: tensor of the same shape, whose values are replaced.

    Raises:
        ValueError: if the file has become shorter.
    """
    direct = target.dtype == stored.dtype and target.is_contiguous() and target.device.type == "cpu"
    values = target.detach() if direct else torch.empty(stored.shape, dtype=stored.dtype, device="cpu")
    if stored.nbytes:
        file.seek(stored.start)
        stream: Any = file  # BinaryIO does not name readinto
        if stream.readinto(values.reshape(-1).view(torch.uint8).numpy()) != stored.nbytes:
            raise ValueError("the file has become shorter while it was read")
    if not direct:
        with torch.no_grad():
            target.copy_(values)


@contextmanager
def opened_weights(path: Path, checksum: str) -> Iterator[tuple[BinaryIO, dict[str, StoredTensor]]]:
    """The file of weights, whose checksum was verified, and its header; errors of reading it name it."""
    try:
        size = file_size(path)
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != checksum:
                raise ModelFileError(f"{path}: damaged: its checksum is not the one in model.json")
            yield file, read_header(file, size)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot read: {error.strerror or error}") from None
    except DataError as error:
        raise ModelFileError(str(error)) from None
    except (ValueError, RuntimeError) as error:
        raise ModelFileError(f"{path}: not the weights of this model: {first_line(error)}") from None
