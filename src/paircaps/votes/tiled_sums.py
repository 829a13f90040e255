"""The walk over the tiles: the two sums of FM agreement, and their gradients.

For votes v, r = 1/‖v‖ and û = r v (E4), the forward pass gathers S = Σû and Z = Σû² (E5). With gradients A of S and D
of Z, a vote's own is dû = A + 2 D û, and through the normalisation dv = r (dû − û ⟨û, dû⟩). Nothing of size B·I·J·K is
allocated: a tile has a few buffers, which the next tile overwrites.
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

    Args:
        u: children, (B, I, P·Q).
        weight: (I, J, Q, R).
        scale: scale of the votes' batch norm, (K,), (I, J, K), or None without one.
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

        Chosen when the sums are taken, not when they are asked for: ``torch.compile`` may trace the caller with a
        batch of any size.
        """
        layout = self.layout
        return self.tile or tile_children(layout.batch, layout.parents, layout.pose_dim)

    @property
    def layout(self) -> Layout:
        """Sizes."""
        return Layout.of(self.u, self.weight, self.rows)

    @property
    def affine(self) -> ScaleAndShift | None:
        """Scale and shift, ready to fold."""
        return None if self.scale is None or self.shift is None else ScaleAndShift(self.scale, self.shift, self.rows)


@dataclass(frozen=True)
class Block:
    """Children and weights of a few tiles, laid out for the product.

    Args:
        children: which.
        parents: which.
        u: (T·P, Q', B).
        weight: (T·P, Q', J·R).
    """

    children: slice
    parents: slice
    u: Tensor
    weight: Tensor


def _blocks(job: SumArguments, affine: ScaleAndShift | None, parents: slice) -> Iterator[Block]:
    for children in slices(job.layout.children, job.tile_size * BLOCK_TILES):
        u = fold_children(job.u, affine, children, job.rows)
        yield Block(children, parents, u, fold_weights(job.weight, affine, children, parents, job.rows))


class Buffers:
    """Room for one tile of votes, (T, P, J, R, B), as often as a pass needs it.

    Args:
        job: whose dtype and device it has.
        parents: J of this walk.
        count: how many such tensors.
    """

    def __init__(self, job: SumArguments, parents: int, count: int) -> None:
        layout = job.layout
        children = min(job.tile_size, layout.children)
        shape = (children, job.rows, parents, layout.columns, layout.batch)
        dtype = full_precision(job.u.dtype)
        self._all = [torch.empty(shape, dtype=dtype, device=job.u.device) for _ in range(count)]

    def of(self, children: int) -> list[Tensor]:
        """The part that this many children need."""
        return [buffer[:children] for buffer in self._all]


def tiled_sums(job: SumArguments) -> tuple[Tensor, Tensor]:
    """S = Σû and Z = Σû² over the children, (B, J, K) each."""
    layout, affine = job.layout, job.affine
    shape = (layout.batch, layout.parents, layout.pose_dim)
    total, squares = (torch.empty(shape, dtype=full_precision(job.u.dtype), device=job.u.device) for _ in range(2))
    for parents in layout.parent_chunks():
        sums = _Sums(job, parents)
        for block in _blocks(job, affine, parents):
            for tile in _tiles(block, job):
                sums.add(*tile)
        total[:, parents], squares[:, parents] = sums.finish()
    return total, squares


def _tiles(block: Block, job: SumArguments) -> Iterator[tuple[Tensor, Tensor]]:
    """Children (T·P, Q', B) and weights (T·P, Q', J·R) of each tile of a block."""
    return zip(block.u.split(job.tile_size * job.rows), block.weight.split(job.tile_size * job.rows), strict=True)


class _Sums:
    """Running sums over tiles for some parents.

    The sum of one tile is rounded once in float32; a block of them is added up in float64.
    """

    def __init__(self, job: SumArguments, parents: slice) -> None:
        layout = job.layout
        width = parents.stop - parents.start
        self.normalize, self.rows = job.normalize, job.rows
        self.buffers = Buffers(job, width, 2)
        dtype = full_precision(job.u.dtype)
        shape = (job.rows, width, layout.columns, layout.batch)
        self.recent = torch.empty((2, BLOCK_TILES, *shape), dtype=dtype, device=job.u.device)
        self.sums = torch.zeros((2, *shape), dtype=sum_precision(self.recent), device=job.u.device)
        self.filled = 0

    def add(self, u: Tensor, weight: Tensor) -> None:
        votes, scratch = self.buffers.of(u.shape[0] // self.rows)
        cast_votes(u, weight, votes)
        if self.normalize:
            votes.mul_(inverse_length(votes, scratch))
        torch.sum(votes, 0, out=self.recent[0, self.filled])
        torch.sum(votes.mul_(votes), 0, out=self.recent[1, self.filled])
        self.filled += 1
        if self.filled == BLOCK_TILES:
            self._flush()

    def _flush(self) -> None:
        self.sums += self.recent[:, : self.filled].sum(1)
        self.filled = 0

    def finish(self) -> tuple[Tensor, Tensor]:
        """S and Z, (B, J, K)."""
        if self.filled:
            self._flush()
        return parents_first(self.sums[0]), parents_first(self.sums[1])


def cast_votes(u: Tensor, weight: Tensor, out: Tensor) -> None:
    """Votes of a tile: (T·P, Q', B) and (T·P, Q', J·R) to (T, P, J, R, B) (E1, E2, E3)."""
    torch.bmm(weight.transpose(1, 2), u, out=out.view(u.shape[0], weight.shape[2], u.shape[2]))


def inverse_length(votes: Tensor, scratch: Tensor) -> Tensor:
    """1/‖v‖ of each vote, (T, 1, J, 1, B); those shorter than ABSENT count as that long."""
    torch.mul(votes, votes, out=scratch)
    return over_pose(scratch).clamp_min_(ABSENT**2).rsqrt_()


def over_pose(values: Tensor) -> Tensor:
    """Sum over the pose, (T, P, J, R, B) to (T, 1, J, 1, B); over both axes at once it is 30 times slower."""
    summed = values.sum(3, keepdim=True)
    return summed.sum(1, keepdim=True) if values.shape[1] > 1 else summed


def tiled_gradients(
    job: SumArguments, grad_sum: Tensor, grad_squares: Tensor
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients for u, weight, scale and shift, from those of S and Z, (B, J, K) each."""
    layout, affine = job.layout, job.affine
    dtype = full_precision(job.u.dtype)
    grad_u = torch.empty(job.u.shape, dtype=dtype, device=job.u.device)
    gradients = FoldedGradients(job.weight, affine, job.scale, job.rows)
    for parents in layout.parent_chunks():
        slope = batch_last(grad_sum[:, parents].to(dtype), job.rows)  # A
        curve = batch_last(2 * grad_squares[:, parents].to(dtype), job.rows)  # 2 D
        buffers = Buffers(job, parents.stop - parents.start, 3)
        for block in _blocks(job, affine, parents):
            grad_children = torch.empty(block.u.shape, dtype=dtype, device=job.u.device)
            grad_weight = torch.empty_like(block.weight)
            into = zip(*(part.split(job.tile_size * job.rows) for part in (grad_children, grad_weight)), strict=True)
            for (u, weight), (into_u, into_weight) in zip(_tiles(block, job), into, strict=True):
                dv = _vote_gradient(job, u, weight, slope, curve, buffers).flatten(0, 1).flatten(1, 2)
                torch.bmm(u, dv.transpose(1, 2), out=into_weight)
                torch.bmm(weight, dv, out=into_u)
            gradients.add(grad_weight, job.weight, block.children, parents)
            of_children = from_columns(grad_children[:, : layout.inner].unflatten(0, (-1, job.rows)))
            if parents.start == 0:
                grad_u[:, block.children] = of_children
            else:
                grad_u[:, block.children] += of_children
    return grad_u.to(job.u.dtype), gradients.weight, *gradients.affine_gradients()


def _vote_gradient(
    job: SumArguments, u: Tensor, weight: Tensor, slope: Tensor, curve: Tensor, buffers: Buffers
) -> Tensor:
    """Gradient of a tile's votes, dv of (T, P, J, R, B)."""
    votes, grad, scratch = buffers.of(u.shape[0] // job.rows)
    cast_votes(u, weight, votes)
    if not job.normalize:
        return torch.mul(votes, curve, out=grad).add_(slope)
    inverse = inverse_length(votes, scratch)
    votes.mul_(inverse)
    # dû in two steps: fused, the product would not be rounded and not cancel where votes have nothing to agree with
    torch.mul(votes, curve, out=grad).add_(slope)
    along = over_pose(torch.mul(votes, grad, out=scratch))
    # what is absent is divided by a constant, not by its length; a comparison is much faster into a float than a bool
    along.mul_(torch.lt(inverse, 0.999 / ABSENT, out=torch.empty_like(inverse)))
    return grad.addcmul_(votes, along, value=-1).mul_(inverse)
