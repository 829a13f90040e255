"""Windows of a grid of capsules: which children each parent of a convolutional capsule layer hears."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.checks import require_not_negative, require_positive


class Shift(NamedTuple):
    """Parents and the children at one place of their windows, of a part of the grid.

    Attributes:
        place: number of the place in a window, from 0 to side² − 1, row by row.
        children: rows and columns of the children.
        parents: rows and columns of the parents.
    """

    place: int
    children: tuple[slice, slice]
    parents: tuple[slice, slice]


@dataclass(frozen=True)
class Windows:
    """Square windows that slide over a grid, as those of a convolution do.

    Args:
        side: rows and columns of a window.
        stride: distance of neighbouring windows.
        padding: rows and columns around the grid, on every side, that windows may reach into; nobody votes there.
    """

    side: int
    stride: int
    padding: int

    def __post_init__(self) -> None:
        require_positive(kernel_size=self.side, stride=self.stride)
        require_not_negative(padding=self.padding)
        if self.padding >= self.side:
            raise ValueError(
                f"padding must be smaller than kernel_size={self.side}, else windows lie outside, got {self.padding}"
            )

    @property
    def places(self) -> int:
        """Number of places in a window, side²."""
        return self.side**2

    def parents(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the parents over a grid of children.

        Args:
            height: rows of the grid.
            width: columns of the grid.
        """
        rows, columns = ((size + 2 * self.padding - self.side) // self.stride + 1 for size in (height, width))
        return rows, columns

    def shifts(self, height: int, width: int, rows: int) -> Iterator[Shift]:
        """All pairs of parent and child, grouped by the child's place in the window, a few rows of parents at a time.

        Args:
            height: rows of the grid.
            width: columns of the grid.
            rows: most rows of parents in a group.
        """
        parents = self.parents(height, width)
        for place in range(self.places):
            dy, dx = divmod(place, self.side)
            top, bottom = self._inside(dy, height, parents[0])
            left, right = self._inside(dx, width, parents[1])
            if left >= right:
                continue
            for first in range(top, bottom, rows):
                last = min(first + rows, bottom)
                children = self._children(dy, first, last), self._children(dx, left, right)
                yield Shift(place, children, (slice(first, last), slice(left, right)))

    def _inside(self, offset: int, size: int, parents: int) -> tuple[int, int]:
        """Range of parents whose child lies inside the grid: 0 ≤ parent · stride + offset − padding < size."""
        first = max(0, -((offset - self.padding) // self.stride))
        return first, min(parents, (size - 1 + self.padding - offset) // self.stride + 1)

    def _children(self, offset: int, first: int, last: int) -> slice:
        """Children at an offset of the windows of a range of parents."""
        start = first * self.stride + offset - self.padding
        return slice(start, start + (last - first - 1) * self.stride + 1, self.stride)

    def gather(self, grid: Tensor) -> Tensor:
        """Children of every window side by side, zero outside the grid.

        Args:
            grid: values of the children, (B, H, W, kinds, ...).

        Returns:
            (B, H', W', side² · kinds, ...), place by place.
        """
        # pad takes axes from the last one on: none for those behind the width
        behind = (0, 0) * (grid.dim() - 3)
        padded = F.pad(grid, (*behind, *(self.padding,) * 4)) if self.padding else grid
        views = padded.unfold(1, self.side, self.stride).unfold(
            2, self.side, self.stride
        )  # (B, H', W', kinds, ..., k, k)
        last = views.dim() - 1
        views = views.permute(0, 1, 2, last - 1, last, *range(3, last - 1))
        return views.flatten(3, 5)

    def inside(self, height: int, width: int, like: Tensor) -> Tensor:
        """One for every place of every window that lies inside the grid, else zero, (H', W', side²).

        Args:
            height: rows of the grid.
            width: columns of the grid.
            like: a tensor of the dtype and device wanted.
        """
        ones = torch.ones((1, height, width, 1), dtype=like.dtype, device=like.device)
        return self.gather(ones)[0]
