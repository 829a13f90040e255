"""The two sums of FM agreement over all votes, tile by tile, and their gradients.

For votes v, r = 1/√(‖v‖² + c) and û = r v (E4, E15), the forward pass computes S = Σ x û and Z = Σ (x û)² over the
children (E5, E14). With gradients A of S and D of Z, the gradient of a weighted vote is A + 2 D x û, that of a
normalised one dû = x (A + 2 D x û), and through the normalisation dv = r (dû − û ⟨û, dû⟩), for every c. Nothing of size
B·I·J·K is allocated: the votes of a tile lie in a few buffers, which the next tile overwrites, and the backward pass
casts them anew.

PyTorch has no operator for this; einsum with a reduction over the votes would materialise them. The loops nest as

    for a chunk of parents           as many as leave room for several children in a tile
        for a block of children      a few tiles, whose children and weights are laid out together
            for a tile of children   as many as cast votes that stay in the cache
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

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
)
from paircaps.votes.windows import Windows


class SumArguments(NamedTuple):
    """Arguments of the tiled sums, in the order of the operator ``paircaps::vote_sums``.

    Attributes:
        u: child capsules, (B, I, P·Q).
        weight: vote weights, (I, J, Q, R).
        scale: scale of the votes' batch norm, (K,) or (I, J, K), or None without one.
        shift: shift of the votes' batch norm, of the same shape.
        rows: P, the rows of a child and of a vote.
        normalize: whether each vote is scaled to length one first (E4).
        tile: children in a tile; None takes those of :meth:`Layout.tile_children`.
        softness: c of the soft normalisation (E15), a tensor of one value, or None for votes of length one.
        child_weight: x, the weight of each child (E14), (B, I), or None for all ones.
        window: side, stride and padding of the windows of a grid of children, or None; see ``grid_sums``.
        unscaled: number of last rows of the weights, those of coordinates, that batch norm does not scale.
    """

    u: Tensor
    weight: Tensor
    scale: Tensor | None
    shift: Tensor | None
    rows: int
    normalize: bool
    tile: int | None = None
    softness: Tensor | None = None
    child_weight: Tensor | None = None
    window: Sequence[int] | None = None
    unscaled: int = 0

    @property
    def tile_size(self) -> int:
        """Children in a tile.

        Chosen when the sums are computed, not when they are asked for: ``torch.compile`` may trace the caller with a
        batch of any size.
        """
        return self.tile or self.layout.tile_children(self.u.device.type)

    @property
    def parent_chunks(self) -> Iterator[slice]:
        """All parents, in chunks that leave room for several children in a tile."""
        return self.layout.parent_chunks(self.u.device.type)

    @property
    def layout(self) -> Layout:
        """Sizes of the votes."""
        return Layout.of(self.u, self.weight, self.rows)

    @property
    def shared(self) -> bool:
        """Whether several children have the same weights, because they lie at the positions of a grid."""
        return self.window is not None or len(self.weight) != self.u.shape[1]

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of the sums, (B, J, K), or (B, H', W', J, K) over windows."""
        grid = () if self.window is None else Windows(*self.window).parents(*self.u.shape[1:3])
        return (self.u.shape[0], *grid, self.weight.shape[1], self.rows * self.weight.shape[3])

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All tensors, in the order of :class:`SumGradients`."""
        return (*self[:4], self.softness, self.child_weight)

    def without_tensors(self) -> SumArguments:
        """The other arguments, in place of the tensors None."""
        nothing: Any = None
        return self.with_tensors((nothing,) * 6)

    def with_tensors(self, tensors: Sequence[Any]) -> SumArguments:
        """The same with other tensors, in the order of :class:`SumGradients`."""
        u, weight, scale, shift, softness, child_weight = tensors
        return self._replace(u=u, weight=weight, scale=scale, shift=shift, softness=softness, child_weight=child_weight)

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
        child_weight: weights of the children themselves, (T, 1, 1, 1, B), or None for all ones.
    """

    children: slice
    parents: slice
    u: Tensor
    weight: Tensor
    child_weight: Tensor | None

    def tiles(self, arguments: SumArguments) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Children, vote weights and child weights of each tile, in the layout of the block."""
        size = arguments.tile_size
        of_children = repeat(None) if self.child_weight is None else self.child_weight.split(size)
        rows = size * arguments.rows
        return zip(self.u.split(rows), self.weight.split(rows), of_children, strict=False)


def _blocks(arguments: SumArguments, affine: ScaleAndShift | None, parents: slice) -> Iterator[Block]:
    """All children in blocks of ``BLOCK_TILES`` tiles, with the weights for some parents."""
    for children in slices(arguments.layout.children, arguments.tile_size * BLOCK_TILES):
        u = fold_children(arguments.u, affine, children, arguments.rows)
        weight = fold_weights(arguments.weight, affine, children, parents, arguments.rows, arguments.unscaled)
        of_children = arguments.child_weight
        if of_children is not None:
            of_children = of_children[:, children].to(u.dtype).t().contiguous()[:, None, None, None]
        yield Block(children, parents, u, weight, of_children)


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
    for parents in arguments.parent_chunks:
        sums = _RunningSums(arguments, parents)
        for block in _blocks(arguments, affine, parents):
            for tile in block.tiles(arguments):
                sums.add(*tile)
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
        self.normalize, self.softness, self.rows = arguments.normalize, arguments.softness, arguments.rows
        self.buffers = Buffers(arguments, width, 2)
        dtype, device = full_precision(arguments.u.dtype), arguments.u.device
        shape = (arguments.rows, width, layout.columns, layout.batch)
        self.recent = torch.empty((2, BLOCK_TILES, *shape), dtype=dtype, device=device)  # Σû and Σû² of each tile
        self.sums = torch.zeros((2, *shape), dtype=sum_precision(self.recent), device=device)
        self.filled = 0

    def add(self, u: Tensor, weight: Tensor, child_weight: Tensor | None) -> None:
        """Add the votes of a tile, from children (T·P, Q', B), weights (T·P, Q', J·R) and x, (T, 1, 1, 1, B)."""
        votes, scratch = self.buffers.of(u.shape[0] // self.rows)
        cast_votes(u, weight, votes)
        factor = inverse_length(votes, scratch, self.softness) if self.normalize else None  # û = r v (E4)
        if child_weight is not None:
            factor = child_weight if factor is None else factor.mul_(child_weight)  # x û (E14)
        if factor is not None:
            votes.mul_(factor)
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


def inverse_length(votes: Tensor, scratch: Tensor, softness: Tensor | None = None) -> Tensor:
    """Inverse lengths r = 1/√(‖v‖² + c) of the votes, (T, 1, J, 1, B); without c, none is shorter than ABSENT."""
    torch.mul(votes, votes, out=scratch)
    squares = sum_over_pose(scratch)
    if softness is not None:
        squares += softness
    return squares.clamp_min_(ABSENT**2).rsqrt_()


def sum_over_pose(values: Tensor) -> Tensor:
    """Sum over the pose, (T, P, J, R, B) to (T, 1, J, 1, B); over both axes at once it is 30 times slower."""
    summed = values.sum(3, keepdim=True)
    return summed.sum(1, keepdim=True) if values.shape[1] > 1 else summed


# --- backward -------------------------------------------------------------------------------------------------------


class SumGradients(NamedTuple):
    """Gradients of the tensors in SumArguments, each of its shape; None for those that are None.

    Attributes:
        u: gradient of the child capsules.
        weight: gradient of the vote weights.
        scale: gradient of the batch norm's scale.
        shift: gradient of the batch norm's shift.
        softness: gradient of c.
        child_weight: gradient of the weights of the children.
    """

    u: Tensor
    weight: Tensor
    scale: Tensor | None
    shift: Tensor | None
    softness: Tensor | None
    child_weight: Tensor | None


def tiled_gradients(arguments: SumArguments, grad_sum: Tensor, grad_squares: Tensor) -> SumGradients:
    """Gradients of all tensors among the arguments.

    Args:
        arguments: arguments of the sums.
        grad_sum: A, the gradient of S, (B, J, K).
        grad_squares: D, the gradient of Z, (B, J, K).
    """
    layout, affine = arguments.layout, arguments.affine
    dtype, device = full_precision(arguments.u.dtype), arguments.u.device
    grad_u = torch.empty(arguments.u.shape, dtype=dtype, device=device)
    gradients = FoldedGradients(arguments.weight, affine, arguments.scale, arguments.rows, arguments.unscaled)
    softness: Tensor | float = 0.0
    child_weight: Tensor | float = 0.0
    for parents in arguments.parent_chunks:
        votes = _VoteGradients(arguments, parents, grad_sum, grad_squares)
        for block in _blocks(arguments, affine, parents):
            grad_children, grad_weight = _block_gradients(arguments, block, votes)
            # weights: undo the folding of batch norm, which gives the gradients of scale and shift too
            gradients.add(grad_weight, arguments.weight, block.children, parents)
            # children: the last of Q + 1 rows is the constant 1, whose gradient nobody wants; chunks of parents add up
            of_children = from_columns(grad_children[:, : layout.inner].unflatten(0, (-1, arguments.rows)))
            if parents.start == 0:
                grad_u[:, block.children] = of_children
            else:
                grad_u[:, block.children] += of_children
        softness, child_weight = votes.softness + softness, votes.child_weight + child_weight
    assert isinstance(softness, Tensor)
    assert isinstance(child_weight, Tensor)
    return SumGradients(
        grad_u.to(arguments.u.dtype),
        gradients.weight,
        *gradients.affine_gradients(),
        None if arguments.softness is None else softness.to(arguments.softness.dtype).view_as(arguments.softness),
        None if arguments.child_weight is None else child_weight.t().to(arguments.child_weight.dtype),
    )


def _block_gradients(arguments: SumArguments, block: Block, votes: _VoteGradients) -> tuple[Tensor, Tensor]:
    """Gradients of a block's children and folded weights, in the layout of the block."""
    grad_children = torch.empty(block.u.shape, dtype=full_precision(arguments.u.dtype), device=arguments.u.device)
    grad_weight = torch.empty_like(block.weight)
    size = arguments.tile_size * arguments.rows
    parts = zip(block.tiles(arguments), grad_children.split(size), grad_weight.split(size), strict=True)
    start = block.children.start
    for (u, weight, child_weight), grad_u_of_tile, grad_weight_of_tile in parts:
        dv = votes.of_tile(u, weight, child_weight, start).flatten(0, 1).flatten(1, 2)  # (T·P, J·R, B)
        # v = Wᵀ u of each row, so dW = u dvᵀ and du = W dv
        torch.bmm(u, dv.transpose(1, 2), out=grad_weight_of_tile)
        torch.bmm(weight, dv, out=grad_u_of_tile)
        start += u.shape[0] // arguments.rows
    return grad_children, grad_weight


class _VoteGradients:
    """Gradients of the votes for one chunk of parents, tile by tile; those of softness and child weights add up in it.

    Args:
        arguments: arguments of the sums.
        parents: range of the parents.
        grad_sum: A, the gradient of S, (B, J, K).
        grad_squares: D, the gradient of Z, (B, J, K).
    """

    def __init__(self, arguments: SumArguments, parents: slice, grad_sum: Tensor, grad_squares: Tensor) -> None:
        self.normalize, self.c, self.rows = arguments.normalize, arguments.softness, arguments.rows
        dtype, device = full_precision(arguments.u.dtype), arguments.u.device
        # the gradient of a weighted vote is slope + curve x û, the same slope and curve for all children
        self.slope = batch_last(grad_sum[:, parents].to(dtype), arguments.rows)  # A
        self.curve = batch_last(2 * grad_squares[:, parents].to(dtype), arguments.rows)  # 2 D
        self.buffers = Buffers(arguments, parents.stop - parents.start, 3)
        layout = arguments.layout
        self.softness = torch.zeros((), dtype=sum_precision(self.slope), device=device)
        size = 0 if arguments.child_weight is None else layout.children
        self.child_weight = torch.zeros((size, layout.batch), dtype=dtype, device=device)

    def of_tile(self, u: Tensor, weight: Tensor, child_weight: Tensor | None, start: int) -> Tensor:
        """Gradient of a tile's votes, dv of (T, P, J, R, B); it lies in a buffer that the next tile overwrites.

        Args:
            u: children of the tile, (T·P, Q', B).
            weight: their folded weights, (T·P, Q', J·R).
            child_weight: x of the children, (T, 1, 1, 1, B), or None.
            start: number of the first of them.
        """
        # the votes again
        votes, grad, scratch = self.buffers.of(u.shape[0] // self.rows)
        cast_votes(u, weight, votes)
        inverse = inverse_length(votes, scratch, self.c) if self.normalize else None
        if inverse is not None:
            votes.mul_(inverse)  # û
        # A + 2 D x û, in two steps: fused, the product would not be rounded and not cancel where votes have nothing to
        # agree with
        torch.mul(votes, self.curve, out=grad)
        if child_weight is not None:
            grad.mul_(child_weight)
        grad.add_(self.slope)
        if inverse is None and child_weight is None:
            return grad
        along = sum_over_pose(torch.mul(votes, grad, out=scratch))  # ⟨û, A + 2 D x û⟩
        if child_weight is not None:
            self.child_weight[start : start + len(votes)] = along.sum((1, 2, 3))
            grad.mul_(child_weight)  # dû
            along.mul_(child_weight)  # ⟨û, dû⟩
        if inverse is None:
            return grad
        if self.c is not None:
            self.softness -= 0.5 * (along * inverse.square()).sum(dtype=self.softness.dtype)
        # what is absent is divided by a constant, not by its length, so that ⟨û, dû⟩ drops out; a comparison is much
        # faster into a float than into a bool
        along.mul_(torch.lt(inverse, 0.999 / ABSENT, out=torch.empty_like(inverse)))
        return grad.addcmul_(votes, along, value=-1).mul_(inverse)  # dv = r (dû − û ⟨û, dû⟩)
