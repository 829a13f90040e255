"""The sums of FM agreement and their gradients by the C kernel, with raw pointers into PyTorch's tensors."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from paircaps._utils.precision import HALF
from paircaps.votes.kernels.native_build import INSTRUCTIONS, KernelUnavailableError, instructions, load_library
from paircaps.votes.tiled_sums import SumArguments, SumGradients

FLOPS_PER_THREAD = 4_000_000
"""Multiplications and additions that are worth a thread of their own: it takes some 20 µs to start one."""


_TASK_BYTES = 1 << 20
"""Memory of a thread in the forward pass, roughly."""

_SIZES = ("batch", "children", "parents", "rows", "inner", "columns", "unscaled", "threads")
_INPUTS = ("u", "weight", "scale", "shift", "softness", "child_weight")
_SUMS = ("total", "squares", "grad_total", "grad_squares")
_GRADIENTS = ("grad_u", "grad_weight", "grad_scale", "grad_shift", "shared", "grad_child_weight")
_COUPLED = ("agreed", "coupled", "grad_coupled", "grad_agreed")


class _Job(ctypes.Structure):
    """The struct Job of votes.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _SIZES),
        ("normalize", ctypes.c_int32),
        ("affine", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in (*_INPUTS, *_SUMS, *_GRADIENTS, *_COUPLED)),
    )


def native_refusal(arguments: SumArguments) -> str | None:
    """Why the C kernel cannot take these arguments, in plain words; None if it can."""
    if arguments.u.device.type not in ("cpu", "meta"):  # on meta the shapes and sizes of processors are computed
        return f"it is for processors, and the children are on {arguments.u.device.type}"
    for tensor in arguments.tensors:
        if tensor is not None and tensor.dtype not in (torch.float32, *HALF):
            return f"it computes in float32, not in {str(tensor.dtype).removeprefix('torch.')}"
    return library_problem()


def library_problem() -> str | None:
    """Why the kernel cannot be loaded here; None if it is."""
    try:
        load_library(instructions())
    except KernelUnavailableError as error:
        return str(error)
    return None


def native_sums(arguments: SumArguments) -> tuple[Tensor, Tensor]:
    """S = Σ x û and Z = Σ (x û)² over the children, (B, J, K) each, in float32."""
    job = _JobOf(arguments)
    shape = (arguments.u.shape[0], *arguments.result_shape[1:])
    total, squares = job.empty("total", shape), job.empty("squares", shape)
    job.run("paircaps_sums")
    return total, squares


def native_gradients(arguments: SumArguments, grad_sum: Tensor, grad_squares: Tensor) -> SumGradients:
    """Gradients of all tensors among the arguments.

    Args:
        arguments: arguments of the sums.
        grad_sum: A, the gradient of S, (B, J, K).
        grad_squares: D, the gradient of Z, (B, J, K).
    """
    job = _JobOf(arguments)
    job.given("grad_total", grad_sum)
    job.given("grad_squares", grad_squares)
    return job.gradients("paircaps_gradients", arguments)


def native_coupled_sums(arguments: SumArguments, agreed: Tensor) -> Tensor:
    """Σ_i softmax_j(⟨v_ij, V_j⟩) v_ij over the children, (B, J, K), in float32.

    Args:
        arguments: arguments of the sums, of votes as long as they are and without weights of children.
        agreed: V, (B, J, K).
    """
    job = _JobOf(arguments)
    job.given("agreed", agreed)
    coupled = job.empty("coupled", agreed.shape)
    job.run("paircaps_coupled")
    return coupled


def native_coupled_gradients(arguments: SumArguments, agreed: Tensor, grad: Tensor) -> tuple[Tensor, SumGradients]:
    """Gradients of V, and of all tensors among the arguments.

    Args:
        arguments: arguments of the sums.
        agreed: V, (B, J, K).
        grad: gradient of the sums, (B, J, K).
    """
    job = _JobOf(arguments)
    job.given("agreed", agreed)
    job.given("grad_coupled", grad)
    of_agreed = job.empty("grad_agreed", agreed.shape)
    return of_agreed.to(agreed.dtype), job.gradients("paircaps_coupled_gradients", arguments)


def native_memory(arguments: SumArguments, backward: bool) -> int:
    """Bytes that a pass of the kernel takes beside its arguments and results; they do not grow with the children.

    Args:
        arguments: arguments of the sums.
        backward: whether the pass is that of the gradients, which copies the gradients of the sums.
    """
    layout = arguments.layout
    lanes = INSTRUCTIONS[instructions()][0]
    images = -(-layout.batch // lanes) * lanes
    return 2 * 4 * images * layout.parents * layout.pose_dim if backward else _TASK_BYTES * torch.get_num_threads()


class _JobOf:
    """A struct for the kernel, and the tensors that its pointers point into."""

    def __init__(self, arguments: SumArguments) -> None:
        layout = arguments.layout
        self.per_vote = arguments.scale is not None and arguments.scale.dim() == 3
        self.of_nothing = layout.product_flops == 0
        threads = min(torch.get_num_threads(), 1 + layout.product_flops // FLOPS_PER_THREAD)
        affine = 0 if arguments.scale is None else 2 if self.per_vote else 1
        sizes = (layout.batch, layout.children, layout.parents, layout.rows, layout.inner, layout.columns)
        self.struct = _Job(*sizes, arguments.unscaled, threads, int(arguments.normalize), affine)
        self.tensors: list[Tensor] = []
        for name, tensor in zip(_INPUTS, arguments.tensors, strict=True):
            if tensor is not None:
                self.given(name, tensor)

    def given(self, name: str, tensor: Tensor) -> None:
        """Point to the values of a tensor, contiguous and in float32."""
        self._point(name, tensor.detach().to(torch.float32).contiguous())

    def empty(self, name: str, shape: tuple[int, ...] | torch.Size, dtype: torch.dtype = torch.float32) -> Tensor:
        """Point to a new tensor, which the kernel fills; without votes it is zero, and there is nothing to run."""
        return self._point(name, (torch.zeros if self.of_nothing else torch.empty)(shape, dtype=dtype))

    def _point(self, name: str, tensor: Tensor) -> Tensor:
        self.tensors.append(tensor)
        setattr(self.struct, name, tensor.data_ptr())
        return tensor

    def gradients(self, function: str, arguments: SumArguments) -> SumGradients:
        """Call a backward pass, and return the gradients of the arguments' tensors in their dtypes."""
        # what the kernel fills
        u, weight = self.empty("grad_u", arguments.u.shape), self.empty("grad_weight", arguments.weight.shape)
        of_child_weight = scale = shift = None
        if arguments.child_weight is not None:
            of_child_weight = self.empty("grad_child_weight", arguments.child_weight.shape)
        pose_dim = arguments.layout.pose_dim
        shared = self.empty("shared", (2 * pose_dim + 1,), torch.float64)
        if self.per_vote and arguments.scale is not None:
            scale, shift = (self.empty(name, arguments.scale.shape) for name in ("grad_scale", "grad_shift"))
        self.run(function)
        # what it means
        if arguments.scale is not None and not self.per_vote:
            scale, shift = shared[:pose_dim], shared[pose_dim:-1]
        softness = None if arguments.softness is None else shared[-1].view_as(arguments.softness)
        found = (u, weight, scale, shift, softness, of_child_weight)
        in_their_dtype = (
            None if part is None or of is None else part.to(of.dtype)
            for part, of in zip(found, arguments.tensors, strict=True)
        )
        return SumGradients(*in_their_dtype)  # pyright: ignore[reportArgumentType]

    def run(self, function: str) -> None:
        """Call the kernel, which leaves Python to other threads meanwhile."""
        if self.of_nothing:
            return
        library = load_library(instructions())
        if getattr(library, function)(ctypes.byref(self.struct)):
            raise MemoryError("the kernel of FM agreement could not allocate its memory")
