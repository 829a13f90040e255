"""The two sums of FM agreement over all votes, tile by tile, and their gradients.

For votes v, r = 1/‖v‖ and û = r v (E4), the forward pass computes S = Σû and Z = Σû² over the children (E5). With
gradients A of S and D of Z, the gradient of a normalised vote is dû = A + 2 D û, and through the normalisation
dv = r (dû − û ⟨û, dû⟩). Nothing of size B·I·J·K is allocated: the votes of a tile lie in a few buffers, which the next
tile overwrites, and the backward pass casts them anew.

PyTorch has no operator for this; einsum with a reduction over the votes would materialise them. The loops nest as

    for a chunk of parents           as many as leave room for several children in a tile
        for a block of children      a few tiles, whose children and weights are laid out together
            for a tile of children   as many as cast votes that stay in the cache
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from paircaps._utils.precision import full_precision
from paircaps.functional import ABSENT
from paircaps.votes.fold_norm import FoldedGradients, ScaleAndShift, fold_children, fold_weights
from paircaps.votes.layout import (
    BLOCK_TILES,
    Layout,
    batch_last,
    from_columns,
    parents_first,
    slices,
    sum_precision,
    tile_children,
)


class SumArguments(NamedTuple):
    """Arguments of the tiled sums, in the order of the operator ``paircaps::vote_sums``.

    Attributes:
        u: child capsules, (B, I, P·Q).
        weight: vote weights, (I, J, Q, R).
        scale: scale of the votes' batch norm, (K,) or (I, J, K), or None without one.
        shift: shift of the votes' batch norm, of the same shape.
        rows: P, the rows of a child and of a vote.
        normalize: whether each vote is scaled to length one first (E4).
        tile: children in a tile; None takes :func:`tile_children`.
    """

    u: Tensor
    weight: Tensor
    scale: Tensor | None
    shift: Tensor | None
    rows: int
    normalize: bool
    tile: int | None = None

    @property
    def tile_size(self) -> int:
        """Children in a tile.

        Chosen when the sums are computed, not when they are asked for: ``torch.compile`` may trace the caller with a
        batch of any size.
        """
        layout = self.layout
        return self.tile or tile_children(layout.batch, layout.parents, layout.pose_dim)

    @property
    def layout(self) -> Layout:
        """Sizes of the votes."""
        return Layout.of(self.u, self.weight, self.rows)

    @property
    def affine(self) -> ScaleAndShift | None:
        """Scale and shift of the batch norm, ready to fold; None without one."""
        return None if self.scale is None or self.shift is None else ScaleAndShift(self.scale, self.shift, self.rows)


# --- blocks and tiles -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Children and weights of a few tiles, laid out for the product, with batch norm folded in.

    Args:
        children: range of the children in the block.
        parents: range of the parents in the chunk.
        u: children, (T·P, Q or Q + 1, B).
        weight: weights, (T·P, Q or Q + 1, J·R).
    """

    children: slice
    parents: slice
    u: Tensor
    weight: Tensor

    def tiles(self, arguments: SumArguments) -> Iterator[tuple[Tensor, Tensor]]:
        """Children and weights of each tile, in the layout of the block."""
        size = arguments.tile_size * arguments.rows
        return zip(self.u.split(size), self.weight.split(size), strict=True)


def _blocks(arguments: SumArguments, affine: ScaleAndShift | None, parents: slice) -> Iterator[Block]:
    """All children in blocks of ``BLOCK_TILES`` tiles, with the weights for some parents."""
    for children in slices(arguments.layout.children, arguments.tile_size * BLOCK_TILES):
        u = fold_children(arguments.u, affine, children, arguments.rows)
        yield Block(children, parents, u, fold_weights(arguments.weight, affine, children, parents, arguments.rows))


class Buffers:
    """Memory for the votes of one tile, (T, P, J, R, B), as many times as a pass needs it.

    Args:
        arguments: arguments of the sums, for sizes, dtype and device.
        parents: number of parents in the chunk.
        count: number of such tensors.
    """

    def __init__(self, arguments: SumArguments, parents: int, count: int) -> None:
        layout = arguments.layout
        children = min(arguments.tile_size, layout.children)
        shape = (children, arguments.rows, parents, layout.columns, layout.batch)
        dtype = full_precision(arguments.u.dtype)
        self._all = [torch.empty(shape, dtype=dtype, device=arguments.u.device) for _ in range(count)]

    def of(self, children: int) -> list[Tensor]:
        """The part of each buffer that this many children need; the last tile may have fewer than the others."""
        return [buffer[:children] for buffer in self._all]


# --- forward --------------------------------------------------------------------------------------------------------


def tiled_sums(arguments: SumArguments) -> tuple[Tensor, Tensor]:
    """S = Σû and Z = Σû² over the children, (B, J, K) each, in full precision."""
    layout, affine = arguments.layout, arguments.affine
    shape = (layout.batch, layout.parents, layout.pose_dim)
    dtype, device = full_precision(arguments.u.dtype), arguments.u.device
    total, squares = (torch.empty(shape, dtype=dtype, device=device) for _ in range(2))
    for parents in layout.parent_chunks():
        sums = _RunningSums(arguments, parents)
        for block in _blocks(arguments, affine, parents):
            for u, weight in block.tiles(arguments):
                sums.add(u, weight)
        total[:, parents], squares[:, parents] = sums.finish()
    return total, squares


class _RunningSums:
    """Running sums over tiles for the parents of one chunk.

    The sum over one tile is rounded once, in float32. ``BLOCK_TILES`` of these are kept, added up, and the result is
    added to the sum so far in float64: adding every tile there would take longer, adding in float32 would lose digits.

    Args:
        arguments: arguments of the sums.
        parents: range of the parents.
    """

    def __init__(self, arguments: SumArguments, parents: slice) -> None:
        layout = arguments.layout
        width = parents.stop - parents.start
        self.normalize, self.rows = arguments.normalize, arguments.rows
        self.buffers = Buffers(arguments, width, 2)
        dtype, device = full_precision(arguments.u.dtype), arguments.u.device
        shape = (arguments.rows, width, layout.columns, layout.batch)
        self.recent = torch.empty((2, BLOCK_TILES, *shape), dtype=dtype, device=device)  # Σû and Σû² of each tile
        self.sums = torch.zeros((2, *shape), dtype=sum_precision(self.recent), device=device)
        self.filled = 0

    def add(self, u: Tensor, weight: Tensor) -> None:
        """Add the votes of a tile, from children (T·P, Q', B) and weights (T·P, Q', J·R)."""
        votes, scratch = self.buffers.of(u.shape[0] // self.rows)
        cast_votes(u, weight, votes)
        if self.normalize:
            votes.mul_(inverse_length(votes, scratch))  # û = r v (E4)
        torch.sum(votes, 0, out=self.recent[0, self.filled])
        torch.sum(votes.mul_(votes), 0, out=self.recent[1, self.filled])
        self.filled += 1
        if self.filled == BLOCK_TILES:
            self._add_recent()

    def _add_recent(self) -> None:
        self.sums += self.recent[:, : self.filled].sum(1)
        self.filled = 0

    def finish(self) -> tuple[Tensor, Tensor]:
        """S and Z, (B, J, K)."""
        if self.filled:
            self._add_recent()
        return parents_first(self.sums[0]), parents_first(self.sums[1])


def cast_votes(u: Tensor, weight: Tensor, out: Tensor) -> None:
    """Votes of a tile: (T·P, Q', B) and (T·P, Q', J·R) to (T, P, J, R, B) (E1, E2, E3)."""
    torch.bmm(weight.transpose(1, 2), u, out=out.view(u.shape[0], weight.shape[2], u.shape[2]))


def inverse_length(votes: Tensor, scratch: Tensor) -> Tensor:
    """Inverse lengths r = 1/‖v‖ of the votes, (T, 1, J, 1, B); votes shorter than ABSENT count as that long."""
    torch.mul(votes, votes, out=scratch)
    return sum_over_pose(scratch).clamp_min_(ABSENT**2).rsqrt_()


def sum_over_pose(values: Tensor) -> Tensor:
    """Sum over the pose, (T, P, J, R, B) to (T, 1, J, 1, B); over both axes at once it is 30 times slower."""
    summed = values.sum(3, keepdim=True)
    return summed.sum(1, keepdim=True) if values.shape[1] > 1 else summed


# --- backward -------------------------------------------------------------------------------------------------------


def tiled_gradients(
    arguments: SumArguments, grad_sum: Tensor, grad_squares: Tensor
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of u, weight, scale and shift.

    Args:
        arguments: arguments of the sums.
        grad_sum: A, the gradient of S, (B, J, K).
        grad_squares: D, the gradient of Z, (B, J, K).
    """
    layout, affine = arguments.layout, arguments.affine
    dtype, device = full_precision(arguments.u.dtype), arguments.u.device
    grad_u = torch.empty(arguments.u.shape, dtype=dtype, device=device)
    gradients = FoldedGradients(arguments.weight, affine, arguments.scale, arguments.rows)
    for parents in layout.parent_chunks():
        # dû = slope + curve û, the same slope and curve for all children
        slope = batch_last(grad_sum[:, parents].to(dtype), arguments.rows)  # A
        curve = batch_last(2 * grad_squares[:, parents].to(dtype), arguments.rows)  # 2 D
        buffers = Buffers(arguments, parents.stop - parents.start, 3)
        for block in _blocks(arguments, affine, parents):
            grad_children, grad_weight = _block_gradients(arguments, block, slope, curve, buffers)
            # weights: undo the folding of batch norm, which gives the gradients of scale and shift too
            gradients.add(grad_weight, arguments.weight, block.children, parents)
            # children: the last of Q + 1 rows is the constant 1, whose gradient nobody wants; chunks of parents add up
            of_children = from_columns(grad_children[:, : layout.inner].unflatten(0, (-1, arguments.rows)))
            if parents.start == 0:
                grad_u[:, block.children] = of_children
            else:
                grad_u[:, block.children] += of_children
    return grad_u.to(arguments.u.dtype), gradients.weight, *gradients.affine_gradients()


def _block_gradients(
    arguments: SumArguments, block: Block, slope: Tensor, curve: Tensor, buffers: Buffers
) -> tuple[Tensor, Tensor]:
    """Gradients of a block's children and folded weights, in the layout of the block."""
    grad_children = torch.empty(block.u.shape, dtype=full_precision(arguments.u.dtype), device=arguments.u.device)
    grad_weight = torch.empty_like(block.weight)
    size = arguments.tile_size * arguments.rows
    parts = zip(block.tiles(arguments), grad_children.split(size), grad_weight.split(size), strict=True)
    for (u, weight), grad_u_of_tile, grad_weight_of_tile in parts:
        dv = _vote_gradient(arguments, u, weight, slope, curve, buffers).flatten(0, 1).flatten(1, 2)  # (T·P, J·R, B)
        # v = Wᵀ u of each row, so dW = u dvᵀ and du = W dv
        torch.bmm(u, dv.transpose(1, 2), out=grad_weight_of_tile)
        torch.bmm(weight, dv, out=grad_u_of_tile)
    return grad_children, grad_weight


def _vote_gradient(
    arguments: SumArguments, u: Tensor, weight: Tensor, slope: Tensor, curve: Tensor, buffers: Buffers
) -> Tensor:
    """Gradient of a tile's votes, dv of (T, P, J, R, B); it lies in a buffer that the next tile overwrites."""
    # the votes again
    votes, grad, scratch = buffers.of(u.shape[0] // arguments.rows)
    cast_votes(u, weight, votes)
    if not arguments.normalize:
        return torch.mul(votes, curve, out=grad).add_(slope)  # dv = A + 2 D v
    inverse = inverse_length(votes, scratch)
    votes.mul_(inverse)  # û
    # dû = A + 2 D û, in two steps: fused, the product would not be rounded and not cancel where votes have nothing to
    # agree with
    torch.mul(votes, curve, out=grad).add_(slope)
    along = sum_over_pose(torch.mul(votes, grad, out=scratch))  # ⟨û, dû⟩
    # what is absent is divided by a constant, not by its length, so that ⟨û, dû⟩ drops out; a comparison is much
    # faster into a float than into a bool
    along.mul_(torch.lt(inverse, 0.999 / ABSENT, out=torch.empty_like(inverse)))
    return grad.addcmul_(votes, along, value=-1).mul_(inverse)  # dv = r (dû − û ⟨û, dû⟩)
