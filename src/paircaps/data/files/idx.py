"""MNIST's idx format: magic number, sizes, bytes, all big-endian."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from paircaps.data.files.stream import open_stream

_UNSIGNED_BYTES = 0x08


def read_idx(path: Path, rank: int, most: int | None = None) -> np.ndarray:
    """The array of bytes in an idx file, gzipped or not.

    Args:
        path: the file.
        rank: number of axes it must have: 3 for images (N, H, W), 1 for labels (N,).
        most: refuse a file that unpacks to more bytes than this.
    """
    with open_stream(path, most) as stream:
        magic = bytes(stream.take(4, "the magic number"))
        if magic[:2] != b"\0\0" or magic[2] != _UNSIGNED_BYTES or magic[3] != rank:
            wanted = bytes([0, 0, _UNSIGNED_BYTES, rank]).hex()
            raise stream.error(f"not an idx file of {rank} axes: magic number {magic.hex()} in place of {wanted}")
        sizes = tuple(int(size) for size in np.frombuffer(stream.take(4 * rank, "the sizes"), ">u4"))
        array = np.frombuffer(stream.take(math.prod(sizes), f"an array of {sizes}"), np.uint8).reshape(sizes)
        stream.require_end(f"an array of {sizes}")
    return array
