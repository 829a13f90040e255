"""NORB's binary matrix format: magic number, rank, sizes, values, all little-endian."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from paircaps.data.files.stream import open_stream

_TYPES = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
_OTHERS = {0x1E3D4C51: "float", 0x1E3D4C52: "packed", 0x1E3D4C53: "double", 0x1E3D4C56: "short"}
_SIZES_AT_LEAST = 3  # a vector's header has three sizes too, the last two without meaning
_RANK_MOST = 8


def read_norb(path: Path, rank: int, most: int | None = None) -> np.ndarray:
    """The array of bytes or whole numbers in a NORB matrix file, gzipped or not.

    Args:
        path: the file.
        rank: number of axes it must have.
        most: refuse a file that unpacks to more bytes than this.
    """
    with open_stream(path, most) as stream:
        magic, axes = (int(value) for value in np.frombuffer(stream.take(8, "the header"), "<u4"))
        if magic not in _TYPES:
            kind = f"a matrix of {_OTHERS[magic]} values" if magic in _OTHERS else f"magic number {magic:#010x}"
            raise stream.error(f"{kind} in place of a NORB matrix of bytes or whole numbers")
        if axes != rank or axes > _RANK_MOST:
            raise stream.error(f"a matrix of {axes} axes in place of {rank}")
        header = np.frombuffer(stream.take(4 * max(axes, _SIZES_AT_LEAST), "the sizes"), "<i4")
        sizes = tuple(int(size) for size in header[:axes])
        if min(sizes) < 0:
            raise stream.error(f"sizes must not be negative, got {sizes}")
        dtype = _TYPES[magic]
        values = stream.take(math.prod(sizes) * dtype.itemsize, f"a matrix of {sizes}")
        stream.require_end(f"a matrix of {sizes}")
    return np.frombuffer(values, dtype).reshape(sizes)
