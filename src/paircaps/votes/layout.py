"""Memory layout and size of a tile of votes.

One layout serves both transforms. A child is P rows of Q values and a vote is P rows of R: the matrix transform has
P = Q = R = √K, the vector transform one row with Q = K_in and R = K. The votes of a tile lie as (T, P, J, R, B), the
batch innermost: every elementwise step then runs over B neighbours, and sums over pose or children add whole rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.precision import full_precision

TILE_BYTES = 5 << 19
"""Bytes of the votes of one tile, 2.5 MB: two or three such buffers are in use at once and should fit a CPU's cache."""

LAUNCHED_TILES = 16
"""Tiles of a layer on a graphics card, if its children and parents divide evenly into so many.

Each operation on a tile is a launch of its own there, which takes as long as the work on 2.5 MB; so a tile is a fixed
share of all votes. The buffers of a pass are two or three tiles: at most a fifth of the votes.
"""

LAUNCHED_PASSES = 4
"""Passes over a grid on a graphics card, at most, for each place in a window."""

IMAGE_BYTES = 4 << 20
"""Bytes of the votes of a few images, for a routing that reads all votes of an image several times."""

LEAST_CHILDREN = 8
"""Least number of children in a tile, if there are that many; parents that do not fit beside them come in chunks."""

BLOCK_TILES = 8
"""Tiles whose children and weights are laid out together, because copies of a few kilobytes are slow."""


@dataclass(frozen=True)
class Layout:
    """Sizes of a layer's votes.

    Args:
        batch: B, all leading axes together.
        children: I, the number of child capsules.
        parents: J, the number of parent capsules.
        rows: P, the rows of a child and of a vote.
        inner: Q, the values in a row of a child.
        columns: R, the values in a row of a vote.
    """

    batch: int
    children: int
    parents: int
    rows: int
    inner: int
    columns: int

    @classmethod
    def of(cls, u: Tensor, weight: Tensor, rows: int) -> Layout:
        """Sizes of the votes of children (B, I, P·Q) with weights (I, J, Q, R)."""
        children, parents, inner, columns = weight.shape
        return cls(u.shape[0], children, parents, rows, inner, columns)

    @property
    def pose_dim(self) -> int:
        """K, the values of a vote."""
        return self.rows * self.columns

    @property
    def votes_bytes(self) -> int:
        """Bytes of all votes in float32."""
        return 4 * self.batch * self.children * self.parents * self.pose_dim

    @property
    def product_flops(self) -> int:
        """Number of multiplications and additions that cast all votes once."""
        return 2 * self.batch * self.children * self.parents * self.rows * self.inner * self.columns

    def parent_chunks(self, device: str = "cpu") -> Iterator[slice]:
        """All parents, in chunks that leave room for several children in a tile.

        Args:
            device: type of the device.
        """
        yield from slices(self.parents, chunk_parents(self.batch, self.pose_dim, self.tile_bytes(device)))

    def tile_children(self, device: str = "cpu") -> int:
        """Number of children in a tile, at least one.

        Args:
            device: type of the device.
        """
        return tile_children(self.batch, self.parents, self.pose_dim, self.tile_bytes(device))

    def tile_bytes(self, device: str = "cpu") -> int:
        """Bytes of the votes of one tile: what fits the cache, or on a graphics card a share of all votes.

        Args:
            device: type of the device.
        """
        return max(TILE_BYTES, -(-self.votes_bytes // LAUNCHED_TILES)) if device == "cuda" else TILE_BYTES


def chunk_parents(batch: int, pose_dim: int, size: int = TILE_BYTES) -> int:
    """Parents in a chunk: as many as leave room for ``LEAST_CHILDREN`` in a tile, at least one."""
    return max(1, size // (4 * max(1, batch) * pose_dim * LEAST_CHILDREN))


def tile_children(batch: int, parents: int, pose_dim: int, size: int = TILE_BYTES) -> int:
    """Number of children in a tile: as many as cast 2.5 MiB of float32 votes, at least one.

    Args:
        batch: number of images.
        parents: J, the number of parents.
        pose_dim: K of a vote.
        size: bytes of a tile, if they are others.
    """
    parents = min(parents, chunk_parents(batch, pose_dim, size))
    return max(1, size // (4 * max(1, batch) * parents * pose_dim))


def pass_columns(columns: int, least: int, device: str) -> int:
    """Images times positions of a pass over a grid of children that share weights.

    Args:
        columns: images times positions of the whole grid.
        least: those of a pass on a processor.
        device: type of the device.
    """
    return max(least, -(-columns // LAUNCHED_PASSES)) if device == "cuda" else least


def tile_images(children: int, parents: int, pose_dim: int) -> int:
    """Images routed at a time: as many as cast ``IMAGE_BYTES`` of float32 votes, at least one."""
    return max(1, IMAGE_BYTES // (4 * children * parents * pose_dim))


def slices(count: int, size: int) -> Iterator[slice]:
    """The range 0..count in pieces of ``size``; the last may be shorter."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def sum_precision(tensor: Tensor) -> torch.dtype:
    """Precision of sums over tiles: float64 where the device has it, so that the number of tiles does not matter."""
    return tensor.dtype if tensor.device.type == "mps" else torch.float64


def to_columns(u: Tensor, children: slice, rows: int) -> Tensor:
    """Some children of (B, I, P·Q) as (T, P, Q, B), in full precision."""
    block = u[:, children].to(full_precision(u.dtype))
    # contiguous first: PyTorch transposes a dense matrix in squares that fit the cache, but not a view with gaps
    flat = block.contiguous().flatten(1).t().contiguous()  # (T·P·Q, B)
    return flat.view(block.shape[1], rows, block.shape[2] // rows, u.shape[0])


def from_columns(columns: Tensor) -> Tensor:
    """(T, P, Q, B) back to (B, T, P·Q)."""
    children, rows, inner, batch = columns.shape
    return columns.flatten(0, 2).t().contiguous().view(batch, children, rows * inner)


def parents_first(sums: Tensor) -> Tensor:
    """Sums of a tile's layout, (P, J, R, B), as capsules, (B, J, P·R)."""
    return sums.permute(3, 1, 0, 2).flatten(2)


def batch_last(capsules: Tensor, rows: int) -> Tensor:
    """Capsules (B, J, P·R) in a tile's layout, (P, J, R, B)."""
    return capsules.unflatten(-1, (rows, -1)).permute(2, 1, 3, 0).contiguous()
