"""What a computation would take, without taking it: tensors of shapes only, counted while they live."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from paircaps.votes.layout import BLOCK_TILES, Layout, chunk_parents, tile_children
from paircaps.votes.tiled_sums import SumArguments, tiled_gradients, tiled_sums

BACKWARD_COPIES = 1.5
"""Of the larger operand, that oneDNN makes in the backward pass of a convolution; between 1.4 and 1.8 were measured."""


class MetaMemory(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive, remembers the most there were, and counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self.flops = 0
        self._seen: dict[int, weakref.ref[Any]] = {}

    def hold(self, *tensors: Tensor) -> None:
        """Count tensors that are there already."""
        for tensor in tensors:
            self._count(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and count what it returns."""
        result = func(*args, **(kwargs or {}))
        for part in tree_leaves(result):
            if isinstance(part, Tensor):
                self._count(part)
        formula = _FLOPS.get(func.overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=result)
        if func.namespace == "paircaps":
            self.peak = max(self.peak, self.live + _buffers_of_walk(func, args))
        if func in (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default):
            self.peak = max(self.peak, self.live + _copies_of_convolution(args, result))
        return result

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        size = storage.nbytes()

        def forget(_: Any) -> None:
            del self._seen[key]
            self.live -= size

        self._seen[key] = weakref.ref(storage, forget)
        self.live += size
        self.peak = max(self.peak, self.live)


def _copies_of_convolution(args: tuple[Any, ...], result: Any) -> int:
    """Bytes that a convolution on a CPU takes while it runs: oneDNN lays its operands out anew."""
    if isinstance(result, Tensor):
        image, weight = args[:2]
        return max(image.nbytes, result.nbytes) + weight.nbytes
    grad_output, image = args[:2]
    return int(BACKWARD_COPIES * max(image.nbytes, grad_output.nbytes))


def _buffers_of_walk(func: Any, args: tuple[Any, ...]) -> int:
    """Bytes that a walk over votes takes while it runs.

    They do not grow with the number of children or parents, so a walk over the first few tells.
    """
    name = func.overloadpacket.__name__
    if not name.startswith("vote_sums"):
        return 0  # statistics work on a megabyte at a time
    backward = name.endswith("backward")
    u, weight, scale, shift, rows, normalize, tile = args[2:] if backward else args
    layout = Layout.of(u, weight, rows)
    tile = tile or tile_children(layout.batch, layout.parents, layout.pose_dim)
    children = min(layout.children, tile * BLOCK_TILES)
    parents = min(layout.parents, chunk_parents(layout.batch, layout.pose_dim))
    if scale is not None and scale.dim() == 3:
        scale, shift = (part[:children, :parents] for part in (scale, shift))
    job = SumArguments(u[:, :children], weight[:children, :parents], scale, shift, rows, normalize, tile)
    inside = MetaMemory()
    with inside:
        results = tiled_gradients(job, args[0][:, :parents], args[1][:, :parents]) if backward else tiled_sums(job)
    return inside.peak - sum(part.nbytes for part in results if part is not None)


def _walk_flops(u: Tensor, weight: Tensor, scale: Any, shift: Any, rows: int, *_: Any, **__: Any) -> int:
    return Layout.of(u, weight, rows).product_flops


def _gradient_flops(grad_sum: Tensor, grad_squares: Tensor, u: Tensor, weight: Tensor, *rest: Any, **_: Any) -> int:
    """Votes are cast anew, and two products take their gradients."""
    scale, shift, rows = rest[:3]
    return 3 * _walk_flops(u, weight, scale, shift, rows)


_FLOPS: dict[Any, Any] = {
    **flop_registry,
    torch.ops.paircaps.vote_sums: _walk_flops,
    torch.ops.paircaps.vote_sums_backward: _gradient_flops,
}
