"""Memory and operations of a computation, counted on meta tensors, which have shapes but take no memory."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from paircaps.votes.grid_sums import first_pass, vote_flops
from paircaps.votes.kernels.choice import path_of
from paircaps.votes.kernels.native import native_memory
from paircaps.votes.layout import BLOCK_TILES, chunk_parents, tile_children
from paircaps.votes.tiled_sums import SumArguments, tiled_gradients, tiled_sums

BACKWARD_COPIES = 1.5
"""Copies of the larger operand that oneDNN makes in the backward pass of a convolution; 1.4 to 1.8 were measured."""


class MetaMemory(TorchDispatchMode):
    """Dispatch mode that counts the bytes of all live tensors, their peak, and operations.

    Attributes:
        live: bytes of the tensors that are alive now.
        peak: largest number of bytes so far.
        flops: floating-point operations so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self.flops = 0
        self._counted: dict[int, weakref.ref[Any]] = {}

    def hold(self, *tensors: Tensor) -> None:
        """Count tensors that exist already."""
        for tensor in tensors:
            self._count(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and count the tensors it returns, its operations and its temporary memory."""
        result = func(*args, **(kwargs or {}))
        for part in tree_leaves(result):
            if isinstance(part, Tensor):
                self._count(part)
        formula = _FLOPS.get(func.overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=result)
        if func.namespace == "paircaps":
            self.peak = max(self.peak, self.live + _vote_buffer_bytes(func, args))
        if func in (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default):
            self.peak = max(self.peak, self.live + _convolution_copy_bytes(args, result))
        return result

    def _count(self, tensor: Tensor) -> None:
        """Count the storage of a tensor from now until it is freed, once for all its views."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._counted:
            return
        size = storage.nbytes()

        def forget(_: Any) -> None:
            del self._counted[key]
            self.live -= size

        self._counted[key] = weakref.ref(storage, forget)
        self.live += size
        self.peak = max(self.peak, self.live)


def _convolution_copy_bytes(args: tuple[Any, ...], result: Any) -> int:
    """Temporary bytes of a convolution on a CPU, in which oneDNN copies operands into its own layout."""
    if isinstance(result, Tensor):
        image, weight = args[:2]
        return max(image.nbytes, result.nbytes) + weight.nbytes
    grad_output, image = args[:2]
    return int(BACKWARD_COPIES * max(image.nbytes, grad_output.nbytes))


def _vote_buffer_bytes(func: Any, args: tuple[Any, ...]) -> int:
    """Temporary bytes of the sums over votes.

    They do not grow with the number of children or parents, so they are counted on the first few of each.
    """
    name = func.overloadpacket.__name__
    backward = name.endswith("backward")
    if name.startswith("coupled_sums"):
        return native_memory(SumArguments(*args[1 + backward :]), backward)
    if not name.startswith("vote_sums"):
        return 0  # vote statistics work on a megabyte at a time
    whole = SumArguments(*(args[2:] if backward else args))
    gradients = args[:2] if backward else ()
    copies = 0
    if whole.shared:  # one pass after the other, whose children and gradients are copies
        whole, gradients = first_pass(whole, gradients)
        copies = sum(part.nbytes for part in (whole.u, whole.child_weight, *gradients) if part is not None)
    if path_of(whole) == "c":
        return copies + native_memory(whole, backward)
    layout = whole.layout
    tile = whole.tile or tile_children(layout.batch, layout.parents, layout.pose_dim)
    children = min(layout.children, tile * BLOCK_TILES)
    parents = min(layout.parents, chunk_parents(layout.batch, layout.pose_dim))
    scale, shift = whole.scale, whole.shift
    if scale is not None and shift is not None and scale.dim() == 3:
        scale, shift = (part[:children, :parents] for part in (scale, shift))
    job = whole._replace(
        u=whole.u[:, :children],
        weight=whole.weight[:children, :parents],
        scale=scale,
        shift=shift,
        child_weight=None if whole.child_weight is None else whole.child_weight[:, :children],
        tile=tile,
    )
    # run the same code on the smaller tensors; what it returns is no buffer
    inside = MetaMemory()
    with inside:
        of_parents = (part[:, :parents] for part in gradients)
        results = tiled_gradients(job, *of_parents) if backward else tiled_sums(job)
    return copies + inside.peak - sum(part.nbytes for part in results if part is not None)


def _sum_flops(*arguments: Any, **_: Any) -> int:
    """Operations of the product that casts the votes."""
    return vote_flops(SumArguments(*arguments))


def _gradient_flops(grad_sum: Tensor, grad_squares: Tensor, *arguments: Any, **_: Any) -> int:
    """Operations of the backward pass: the votes are cast again, and two products give the gradients."""
    return 3 * _sum_flops(*arguments)


_FLOPS: dict[Any, Any] = {
    **flop_registry,
    torch.ops.paircaps.coupled_sums: lambda agreed, *arguments, **_: _sum_flops(*arguments),
    torch.ops.paircaps.coupled_sums_backward: lambda grad, *rest, **_: _gradient_flops(grad, *rest),
    torch.ops.paircaps.vote_sums: _sum_flops,
    torch.ops.paircaps.vote_sums_backward: _gradient_flops,
}
