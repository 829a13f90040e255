"""Two file formats of bare arrays, a header with the sizes and then the values: MNIST's idx and NORB's matrices.

idx: magic number, sizes, bytes, all big-endian. NORB: magic number, rank, sizes, values, all little-endian.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from paircaps.data.files.stream import open_stream

_IDX_BYTES = 0x08
_NORB_TYPES = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
_NORB_OTHERS = {0x1E3D4C51: "float", 0x1E3D4C52: "packed", 0x1E3D4C53: "double", 0x1E3D4C56: "short"}
_NORB_SIZES = 3  # a vector's header has three sizes too, the last two without meaning
_RANK_MOST = 8


def read_idx(path: Path, rank: int, most: int | None = None) -> np.ndarray:
    """Read the array of bytes in an idx file, gzipped or not.

    Args:
        path: path of the file.
        rank: number of axes it must have: 3 for images (N, H, W), 1 for labels (N,).
        most: most bytes that the file may unpack to; what it can hold without it.
    """
    with open_stream(path, most) as stream:
        magic = bytes(stream.take(4, "the magic number"))
        if magic[:2] != b"\0\0" or magic[2] != _IDX_BYTES or magic[3] != rank:
            wanted = bytes([0, 0, _IDX_BYTES, rank]).hex()
            raise stream.error(f"not an idx file of {rank} axes: magic number {magic.hex()} in place of {wanted}")
        sizes = tuple(int(size) for size in np.frombuffer(stream.take(4 * rank, "the sizes"), ">u4"))
        array = np.frombuffer(stream.take(math.prod(sizes), f"an array of {sizes}"), np.uint8).reshape(sizes)
        stream.require_end(f"an array of {sizes}")
    return array


def read_norb(path: Path, rank: int, most: int | None = None) -> np.ndarray:
    """Read the array of bytes or whole numbers in a NORB matrix file, gzipped or not.

    Args:
        path: path of the file.
        rank: number of axes it must have.
        most: most bytes that the file may unpack to; what it can hold without it.
    """
    with open_stream(path, most) as stream:
        magic, axes = (int(value) for value in np.frombuffer(stream.take(8, "the header"), "<u4"))
        if magic not in _NORB_TYPES:
            kind = (
                f"a matrix of {_NORB_OTHERS[magic]} values" if magic in _NORB_OTHERS else f"magic number {magic:#010x}"
            )
            raise stream.error(f"{kind} in place of a NORB matrix of bytes or whole numbers")
        if axes != rank or axes > _RANK_MOST:
            raise stream.error(f"a matrix of {axes} axes in place of {rank}")
        header = np.frombuffer(stream.take(4 * max(axes, _NORB_SIZES), "the sizes"), "<i4")
        sizes = tuple(int(size) for size in header[:axes])
        if min(sizes) < 0:
            raise stream.error(f"sizes must not be negative, got {sizes}")
        dtype = _NORB_TYPES[magic]
        values = stream.take(math.prod(sizes) * dtype.itemsize, f"a matrix of {sizes}")
        stream.require_end(f"a matrix of {sizes}")
    return np.frombuffer(values, dtype).reshape(sizes)
