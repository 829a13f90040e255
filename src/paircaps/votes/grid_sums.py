"""The two sums of FM agreement over a grid of children that share their vote weights, and their gradients.

Two layers have such children. With ``share="position"``, all positions of the grid vote for the same parents with the
same weights. In a convolutional capsule layer, parents hear a window of positions, and each place in the window has
weights of its own. Either way many children are multiplied by the same matrices, so positions are treated as images:
a pass takes a part of the grid, casts its votes as if every position were an image, and adds the
results to the sums of the parents. A window slides by adding to other parents, and is never copied out as a whole:
memory is that of one pass, however large the grid is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.precision import full_precision
from paircaps.votes.kernels.choice import gradients_of, sums_of
from paircaps.votes.layout import pass_columns, slices, sum_precision
from paircaps.votes.tiled_sums import SumArguments, SumGradients
from paircaps.votes.windows import Windows

COLUMNS = 1024
"""Images times positions of a pass on a processor: enough for long vectors, few enough that several kinds of children
fit a tile."""


@dataclass(frozen=True)
class Pass:
    """Part of the children that a set of weights casts the votes of, and the parents they vote for.

    Args:
        children: index of the children in the grid, (B, ..., kinds, D).
        weights: range of their weights.
        parents: index of the parents in their grid; None if all children vote for the same parents.
    """

    children: tuple[slice, ...]
    weights: slice
    parents: tuple[slice, ...] | None


def grid_sums(arguments: SumArguments) -> tuple[Tensor, Tensor]:
    """S = Σ x û and Z = Σ (x û)² over children that share weights, in full precision.

    Args:
        arguments: arguments of the sums. Without ``window``, the children (B, N · kinds, P·Q) lie at N positions, and
            the sums are (B, J, K). With it, they are a grid of (B, H, W, kinds, P·Q), weights are those of side² ·
            kinds children, and the sums are (B, H', W', J, K).
    """
    shape, passes = _plan(arguments)
    pose = (arguments.weight.shape[1], arguments.rows * arguments.weight.shape[3])
    dtype = full_precision(arguments.u.dtype)
    # few passes add to a parent where windows slide, many where all positions vote for the same parents
    precise = sum_precision(arguments.u) if arguments.window is None else dtype
    total, squares = (torch.zeros((*shape, *pose), dtype=precise, device=arguments.u.device) for _ in range(2))
    for part in passes:
        some, grid = _arguments_of(arguments, part)
        for whole, sums in zip((total, squares), sums_of(some), strict=True):
            sums = sums.view(*grid, *pose)
            if part.parents is None:
                whole += sums.sum(1)
            else:
                whole[part.parents] += sums
    return total.to(dtype), squares.to(dtype)


def grid_gradients(arguments: SumArguments, grad_sum: Tensor, grad_squares: Tensor) -> SumGradients:
    """Gradients of all tensors among the arguments.

    Args:
        arguments: arguments of the sums.
        grad_sum: A, the gradient of S, of its shape.
        grad_squares: D, the gradient of Z, of its shape.
    """
    _, passes = _plan(arguments)
    tensors = arguments.tensors
    precise = [_precision_of(arguments, index, tensor) for index, tensor in enumerate(tensors)]
    found = [
        None if tensor is None else torch.zeros(tensor.shape, dtype=dtype, device=tensor.device)
        for tensor, dtype in zip(tensors, precise, strict=True)
    ]
    views = list(found)
    views[0], views[5] = _grid(arguments, found[0]), _grid(arguments, found[5])
    for part in passes:
        some, grid = _arguments_of(arguments, part)
        gradients = gradients_of(some, *(_of_parents(grad, part, grid) for grad in (grad_sum, grad_squares)))
        for whole, of_part, name in zip(views, gradients, SumGradients._fields, strict=True):
            if whole is None or of_part is None:
                continue
            if name in ("u", "child_weight"):
                whole[part.children] += of_part.view(*grid, *of_part.shape[1:])
            elif name == "weight" or (name != "softness" and whole.dim() == 3):
                whole[part.weights] += of_part
            else:
                whole += of_part
    ends = (
        None if gradient is None or tensor is None else gradient.to(tensor.dtype)
        for gradient, tensor in zip(found, tensors, strict=True)
    )
    return SumGradients(*ends)  # pyright: ignore[reportArgumentType]


def _precision_of(arguments: SumArguments, index: int, tensor: Tensor | None) -> torch.dtype:
    """Precision in which a gradient is added up: double but for the children, which have few passes each."""
    if tensor is None or index in (0, 5):
        return full_precision(arguments.u.dtype)
    return sum_precision(arguments.u)


def _plan(arguments: SumArguments) -> tuple[tuple[int, ...], Iterator[Pass]]:
    """Leading axes of the sums, and the passes over the grid."""
    kinds = len(arguments.weight)
    if arguments.window is None:
        batch, children, _ = arguments.u.shape
        columns = pass_columns(batch * children // kinds, COLUMNS, arguments.u.device.type)
        size = max(1, columns // max(1, batch))
        every = slice(None)
        return (batch,), (Pass((every, some), slice(0, kinds), None) for some in slices(children // kinds, size))
    windows = Windows(*arguments.window)
    batch, height, width, kinds, _ = arguments.u.shape
    parents = windows.parents(height, width)
    columns = pass_columns(batch * parents[0] * parents[1], COLUMNS, arguments.u.device.type)
    rows = max(1, columns // max(1, batch * parents[1]))
    return (batch, *parents), (
        Pass((slice(None), *shift.children), _of_place(shift.place, kinds), (slice(None), *shift.parents))
        for shift in windows.shifts(height, width, rows)
    )


def _of_place(place: int, kinds: int) -> slice:
    return slice(place * kinds, (place + 1) * kinds)


def _grid(arguments: SumArguments, values: Tensor | None) -> Tensor | None:
    """Values of the children, (B, N · kinds, ...), by position, (B, N, kinds, ...); a grid stays as it is."""
    if values is None or arguments.window is not None:
        return values
    return values.unflatten(1, (-1, len(arguments.weight)))


def _arguments_of(arguments: SumArguments, part: Pass) -> tuple[SumArguments, tuple[int, ...]]:
    """Arguments of the sums over one pass, whose positions are images, and the leading axes of its children."""
    u = _grid(arguments, arguments.u)
    assert u is not None
    u = u[part.children]
    grid = tuple(u.shape[:-2])
    weight = _grid(arguments, arguments.child_weight)
    scale, shift = arguments.scale, arguments.shift
    if scale is not None and shift is not None and scale.dim() == 3:
        scale, shift = scale[part.weights], shift[part.weights]
    some = arguments._replace(
        u=u.flatten(0, -3),
        weight=arguments.weight[part.weights],
        scale=scale,
        shift=shift,
        child_weight=None if weight is None else weight[part.children].flatten(0, -2),
        window=None,
    )
    return some, grid


def _of_parents(gradient: Tensor, part: Pass, grid: tuple[int, ...]) -> Tensor:
    """Gradient of the sums for every position of a pass, (images and positions, J, K)."""
    if part.parents is None:
        gradient = gradient.unsqueeze(1).expand(*grid, *gradient.shape[1:])
    else:
        gradient = gradient[part.parents]
    return gradient.flatten(0, -3)


def first_pass(arguments: SumArguments, gradients: Sequence[Tensor] = ()) -> tuple[SumArguments, tuple[Tensor, ...]]:
    """Arguments of the sums over the first pass, and gradients of the sums for its positions: as large as any pass.

    Args:
        arguments: arguments of the sums over a grid.
        gradients: gradients of the sums, if any.
    """
    part = next(iter(_plan(arguments)[1]))
    some, grid = _arguments_of(arguments, part)
    return some, tuple(_of_parents(gradient, part, grid) for gradient in gradients)


def vote_flops(arguments: SumArguments) -> int:
    """Number of multiplications and additions that cast all votes once, over a grid or not.

    Args:
        arguments: arguments of the sums.
    """
    if not arguments.shared:
        return arguments.layout.product_flops
    return sum(_arguments_of(arguments, part)[0].layout.product_flops for part in _plan(arguments)[1])
