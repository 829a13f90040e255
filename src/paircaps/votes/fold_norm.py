"""Batch norm folded into the vote weights, a block of children at a time, and its derivative.

A normalised vote is g ⊙ (u W) + h. Its scale g goes into the weights; its shift h is one more row of them, and every
child gets one more value, 1. The product then casts finished votes. The last rows of the weights may be exempt from the
scale, as those of coordinates are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.precision import full_precision
from paircaps.votes.layout import sum_precision, to_columns

Statistics = Callable[[], tuple[Tensor, Tensor]]
"""Computes mean and variance (divided by the count) of the values to be normalised."""


class FoldingNorm(Protocol):
    """A batch norm that can be folded into the weights before it."""

    shape: tuple[int, ...]
    """Shape of the statistics: (K,) or (I, J, K)."""

    def fold(self, statistics: Statistics, count: int) -> tuple[Tensor, Tensor]:
        """Scale and shift that the norm applies, each of its shape.

        Args:
            statistics: called in training only.
            count: number of values in each statistic.
        """
        ...


class ScaleAndShift:
    """Scale and shift of the votes, laid out as the weights are: one per pose dimension, or one per vote.

    Args:
        scale: g, (K,) or (I, J, K).
        shift: h, of the same shape.
        rows: P, the rows of a vote.
    """

    def __init__(self, scale: Tensor, shift: Tensor, rows: int) -> None:
        self.scale, self.shift = (_as_rows(part.to(full_precision(part.dtype)), rows) for part in (scale, shift))
        self.per_vote = scale.dim() == 3

    def at(self, children: slice, parents: slice) -> tuple[Tensor, Tensor]:
        """Scale and shift of some children's votes for some parents, (T or 1, P, 1, J or 1, R)."""
        if not self.per_vote:
            return self.scale, self.shift
        return self.scale[children, :, :, parents], self.shift[children, :, :, parents]


def _as_rows(values: Tensor, rows: int) -> Tensor:
    """(K,) to (1, P, 1, 1, R); (I, J, K) to (I, P, 1, J, R)."""
    values = values.unflatten(-1, (rows, -1))
    return values[None, :, None, None] if values.dim() == 2 else values.transpose(1, 2).unsqueeze(2)


def _from_rows(values: Tensor) -> Tensor:
    """(T, P, J, R) back to (T, J, K)."""
    return values.transpose(1, 2).flatten(2)


def fold_children(u: Tensor, affine: ScaleAndShift | None, children: slice, rows: int) -> Tensor:
    """Some children, laid out for the product, with a constant 1 appended where there is a shift.

    Args:
        u: all children, (B, I, P·Q).
        affine: scale and shift, or None without batch norm.
        children: range of the children.
        rows: P, the rows of a child.

    Returns:
        (T·P, Q or Q + 1, B).
    """
    if affine is None:  # a view: the product reads them where they lie
        block = u[:, children].to(full_precision(u.dtype)).unflatten(-1, (rows, -1))  # (B, T, P, Q)
        return block.permute(1, 2, 3, 0).flatten(0, 1)
    return F.pad(to_columns(u, children, rows), (0, 0, 0, 1), value=1.0).flatten(0, 1)


def fold_weights(
    weight: Tensor, affine: ScaleAndShift | None, children: slice, parents: slice, rows: int, unscaled: int = 0
) -> Tensor:
    """Weights between some children and some parents, laid out for the product, with batch norm folded in.

    Args:
        weight: all weights, (I, J, Q, R).
        affine: scale and shift, or None without batch norm.
        children: range of the children.
        parents: range of the parents.
        rows: P, the rows of a child; each has a scale of its own, so the weights are repeated for each.
        unscaled: number of last rows of the weights that have no scale.

    Returns:
        (T·P, Q or Q + 1, J·R).
    """
    block = weight[children, parents].to(full_precision(weight.dtype)).transpose(1, 2).unsqueeze(1)  # (T, 1, Q, J, R)
    if affine is None:
        folded = block.expand(-1, rows, -1, -1, -1)
    else:
        scale, shift = affine.at(children, parents)
        scaled = block.shape[2] - unscaled
        exempt = block[:, :, scaled:].expand(-1, rows, -1, -1, -1)
        shift = shift.expand(block.shape[0], -1, -1, block.shape[3], -1)
        folded = torch.cat([block[:, :, :scaled] * scale, exempt, shift], dim=2)
    return folded.reshape(folded.shape[0] * rows, folded.shape[2], -1)


class FoldedGradients:
    """Gradients of weights, scale and shift, gathered block by block from those of the folded weights.

    For a folded weight F = g W with gradient dF: dW = g dF, summed over the rows of a child, which share W; and
    dg = Σ W dF over Q. The gradient of h is that of the appended row.

    Args:
        weight: all weights, (I, J, Q, R).
        affine: scale and shift, or None without batch norm.
        scale: g in its own shape and dtype, or None.
        rows: P, the rows of a child.
        unscaled: number of last rows of the weights that have no scale.
    """

    def __init__(
        self, weight: Tensor, affine: ScaleAndShift | None, scale: Tensor | None, rows: int, unscaled: int = 0
    ) -> None:
        self.affine, self.rows, self.scaled = affine, rows, weight.shape[2] - unscaled
        self.weight = torch.empty_like(weight, memory_format=torch.contiguous_format)
        self.dtype = None if scale is None else scale.dtype
        self._scale = None if scale is None else torch.zeros_like(scale, dtype=sum_precision(scale))
        self._shift = None if scale is None else torch.zeros_like(scale, dtype=sum_precision(scale))

    def add(self, folded: Tensor, weight: Tensor, children: slice, parents: slice) -> None:
        """Add the gradient of a block.

        Args:
            folded: gradient of the folded weights, (T·P, Q or Q + 1, J·R).
            weight: all weights, (I, J, Q, R).
            children: range of the block's children.
            parents: range of the block's parents.
        """
        block = weight[children, parents].transpose(1, 2).unsqueeze(1)  # (T, 1, Q, J, R)
        folded = folded.view(-1, self.rows, folded.shape[1], *block.shape[3:])  # (T, P, Q or Q + 1, J, R)
        if self.affine is None:
            self.weight[children, parents] = (folded.sum(1) if self.rows > 1 else folded[:, 0]).transpose(1, 2)
            return
        scale, _ = self.affine.at(children, parents)
        inner, exempt, shift = folded[:, :, : self.scaled], folded[:, :, self.scaled : -1], folded[:, :, -1]
        self.weight[children, parents, : self.scaled] = (inner * scale).sum(1).transpose(1, 2)
        self.weight[children, parents, self.scaled :] = exempt.sum(1).transpose(1, 2)
        of_scale = (inner * block[:, :, : self.scaled]).sum(2)
        self._add_affine(_from_rows(of_scale), _from_rows(shift), children, parents)

    def _add_affine(self, scale: Tensor, shift: Tensor, children: slice, parents: slice) -> None:
        """Add the gradients of a block's scale and shift, (T, J, K) each, in the shape of the norm."""
        assert self.affine is not None
        assert self._scale is not None
        assert self._shift is not None
        if self.affine.per_vote:
            self._scale[children, parents], self._shift[children, parents] = scale, shift
        else:
            self._scale += scale.sum((0, 1))
            self._shift += shift.sum((0, 1))

    def affine_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of scale and shift, in their own shape and dtype; None without batch norm."""
        if self._scale is None or self._shift is None:
            return None, None
        return self._scale.to(self.dtype), self._shift.to(self.dtype)
