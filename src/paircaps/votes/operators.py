"""Sums and statistics of votes as operators of PyTorch: one node to ``torch.compile``, differentiable by autograd.

Traced through, the loop over tiles would be unrolled into thousands of nodes. Each operator needs a schema, a rule for
the shapes of its results, and a gradient; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from paircaps._utils.precision import full_precision, without_autocast
from paircaps.votes.grid_sums import grid_gradients, grid_sums
from paircaps.votes.kernels.choice import coupled_path, gradients_of, sums_of
from paircaps.votes.statistics import moment_gradients, moments_of_votes
from paircaps.votes.tiled_sums import SumArguments

SECOND_DERIVATIVE = (
    "the streaming agreement can be differentiated once; for second derivatives take the votes dense: "
    "CapsuleLayer(..., streaming=False)"
)


def vote_sums(arguments: SumArguments) -> tuple[Tensor, Tensor]:
    """Σû and Σû² over the children, (B, J, K) each, in full precision, tile by tile."""
    return _call_sums(*arguments)


def coupled_sums(arguments: SumArguments, agreed: Tensor) -> Tensor:
    """Σ_i softmax_j(⟨v_ij, V_j⟩) v_ij over the children, (B, J, K), in full precision: an iteration of dynamic routing.

    Args:
        arguments: arguments of the sums, for which :func:`can_couple` is true; votes are taken as long as they are.
        agreed: V, the sum of all outputs so far, (B, J, K).
    """
    return _call_coupled(agreed, *arguments)


def can_couple(arguments: SumArguments) -> bool:
    """Whether a kernel takes coupled sums of these arguments, here and now.

    Not while PyTorch compiles, since the choice cannot be traced, nor under the transforms of ``torch.func``.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return not arguments.shared and coupled_path(arguments) is not None


def vote_statistics(u: Tensor, weight: Tensor, rows: int, per_vote: bool) -> tuple[Tensor, Tensor]:
    """Mean and variance of all votes, (K,), or of each, (I, J, K), in full precision.

    Args:
        u: child capsules, (B, I, P·Q).
        weight: vote weights, (I, J, Q, R).
        rows: P, the rows of a child and of a vote.
        per_vote: True for one statistic per vote, over the batch; False for one per pose dimension, over all else.
    """
    return _call_statistics(u, weight, rows, per_vote)


# --- operators ----------------------------------------------------------------------------------------------------


SUM_ARGUMENTS = (
    "Tensor u, Tensor weight, Tensor? scale, Tensor? shift, SymInt rows, bool normalize, SymInt? tile, "
    "Tensor? softness, Tensor? child_weight, SymInt[]? window, SymInt unscaled"
)
"""The fields of SumArguments, as PyTorch's dispatcher wants them."""


@without_autocast
def _sums(*arguments: Any) -> tuple[Tensor, Tensor]:
    of = SumArguments(*arguments)
    return grid_sums(of) if of.shared else sums_of(of)


@without_autocast
def _sums_backward(grad_sum: Tensor, grad_squares: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    of = SumArguments(*arguments)
    gradients = (grid_gradients if of.shared else gradients_of)(of, grad_sum, grad_squares)
    # an operator returns tensors only: an empty one where an argument is None
    return tuple(of.u.new_empty(0) if gradient is None else gradient for gradient in gradients)


@without_autocast
def _coupled(agreed: Tensor, *arguments: Any) -> Tensor:
    of = SumArguments(*arguments)
    path = coupled_path(of)
    assert path is not None
    return path.sums(of, agreed)


@without_autocast
def _coupled_backward(grad: Tensor, agreed: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    of = SumArguments(*arguments)
    path = coupled_path(of)
    assert path is not None
    of_agreed, gradients = path.gradients(of, agreed, grad)
    return of_agreed, *(of.u.new_empty(0) if gradient is None else gradient for gradient in gradients)


_vote_sums = custom_op("paircaps::vote_sums", _sums, mutates_args=(), schema=f"({SUM_ARGUMENTS}) -> (Tensor, Tensor)")
_vote_sums_backward = custom_op(
    "paircaps::vote_sums_backward",
    _sums_backward,
    mutates_args=(),
    schema=f"(Tensor grad_sum, Tensor grad_squares, {SUM_ARGUMENTS}) -> ({', '.join(['Tensor'] * 6)})",
)
_coupled_sums = custom_op(
    "paircaps::coupled_sums", _coupled, mutates_args=(), schema=f"(Tensor agreed, {SUM_ARGUMENTS}) -> Tensor"
)
_coupled_sums_backward = custom_op(
    "paircaps::coupled_sums_backward",
    _coupled_backward,
    mutates_args=(),
    schema=f"(Tensor grad, Tensor agreed, {SUM_ARGUMENTS}) -> ({', '.join(['Tensor'] * 7)})",
)
_vote_statistics = custom_op("paircaps::vote_statistics", moments_of_votes, mutates_args=())
_vote_statistics_backward = custom_op("paircaps::vote_statistics_backward", moment_gradients, mutates_args=())


# --- shapes, for torch.compile --------------------------------------------------------------------------------------


@_vote_sums.register_fake
def _(*arguments: Any) -> Any:
    of = SumArguments(*arguments)
    return tuple(of.u.new_empty(of.result_shape, dtype=full_precision(of.u.dtype)) for _ in range(2))


@_vote_sums_backward.register_fake
def _(grad_sum: Tensor, grad_squares: Tensor, *arguments: Any) -> Any:
    of = SumArguments(*arguments)
    return tuple(of.u.new_empty(0) if part is None else part.new_empty(part.shape) for part in of.tensors)


@_coupled_sums.register_fake
def _(agreed: Tensor, *arguments: Any) -> Any:
    return agreed.new_empty(agreed.shape)


@_coupled_sums_backward.register_fake
def _(grad: Tensor, agreed: Tensor, *arguments: Any) -> Any:
    of = SumArguments(*arguments)
    parts = (of.u.new_empty(0) if part is None else part.new_empty(part.shape) for part in of.tensors)
    return agreed.new_empty(agreed.shape), *parts


@_vote_statistics.register_fake
def _(u: Tensor, weight: Tensor, rows: int, per_vote: bool) -> Any:
    pose_dim = rows * weight.shape[3]
    shape = (*weight.shape[:2], pose_dim) if per_vote else (pose_dim,)
    return tuple(u.new_empty(shape, dtype=full_precision(u.dtype)) for _ in range(2))


@_vote_statistics_backward.register_fake
def _(u: Tensor, weight: Tensor, *_: Any) -> Any:
    return u.new_empty(u.shape), weight.new_empty(weight.shape)


# --- gradients ------------------------------------------------------------------------------------------------------


def _save_sums(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    arguments = SumArguments(*inputs)
    ctx.options = arguments.without_tensors()
    ctx.save_for_backward(*arguments.tensors)


def _sums_gradient(ctx: Any, *gradients: Tensor) -> Any:
    arguments: SumArguments = ctx.options.with_tensors(ctx.saved_tensors)
    found = _call_sums_backward(*gradients, *arguments)
    wanted = [None if of is None else part for of, part in zip(arguments.tensors, found, strict=True)]
    nothing: Any = None
    return SumArguments(*(nothing,) * len(arguments)).with_tensors(wanted)


def _save_coupled(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    agreed, *rest = inputs
    arguments = SumArguments(*rest)
    ctx.options = arguments.without_tensors()
    ctx.save_for_backward(agreed, *arguments.tensors)


def _coupled_gradient(ctx: Any, grad: Tensor) -> Any:
    agreed, *tensors = ctx.saved_tensors
    arguments: SumArguments = ctx.options.with_tensors(tensors)
    of_agreed, *found = _call_coupled_backward(grad, agreed, *arguments)
    wanted = [None if of is None else part for of, part in zip(tensors, found, strict=True)]
    nothing: Any = None
    return of_agreed, *SumArguments(*(nothing,) * len(arguments)).with_tensors(wanted)


def _save_statistics(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    u, weight, ctx.rows, _ = inputs
    ctx.save_for_backward(u, weight, output[0])


def _statistics_gradient(ctx: Any, *gradients: Tensor) -> Any:
    u, weight, mean = ctx.saved_tensors
    return *_call_statistics_backward(u, weight, ctx.rows, mean, *gradients), None, None


def _save_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    pass


def _refuse_second_derivative(*_: Any) -> Any:
    raise RuntimeError(SECOND_DERIVATIVE)


_vote_sums.register_autograd(_sums_gradient, setup_context=_save_sums)
_coupled_sums.register_autograd(_coupled_gradient, setup_context=_save_coupled)
_coupled_sums_backward.register_autograd(_refuse_second_derivative, setup_context=_save_nothing)
_vote_statistics.register_autograd(_statistics_gradient, setup_context=_save_statistics)
_vote_sums_backward.register_autograd(_refuse_second_derivative, setup_context=_save_nothing)
_vote_statistics_backward.register_autograd(_refuse_second_derivative, setup_context=_save_nothing)


def _callable(
    operator: Any, compute: Callable[..., Any], save: Callable[..., None], gradient: Callable[..., Any]
) -> Callable[..., Any]:
    """A function that calls the operator where only shapes matter, as in ``torch.compile``, else an autograd.Function.

    PyTorch takes a second to prepare the first call of a custom operator, and ``torch.func`` cannot differentiate one.

    Args:
        operator: registered operator.
        compute: the Python function behind it.
        save: saves what the gradient needs, as ``setup_context`` of an autograd.Function.
        gradient: computes gradients, as ``backward`` of an autograd.Function.
    """

    class Function(torch.autograd.Function):
        setup_context = staticmethod(save)
        backward = staticmethod(gradient)

        @staticmethod
        def forward(*inputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return compute(*inputs)

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
            """One sample after the other: correct for every argument, and no faster than a loop."""
            results = [
                Function.apply(
                    *(a if dim is None else a.select(dim, i) for a, dim in zip(inputs, in_dims, strict=True))
                )
                for i in range(info.batch_size)
            ]
            stacked = tuple(torch.stack(parts) for parts in zip(*results, strict=True))
            return stacked, (0,) * len(stacked)

    def call(*inputs: Any) -> Any:
        only_shapes = torch.compiler.is_compiling() or inputs[0].is_meta
        return operator(*inputs) if only_shapes else Function.apply(*inputs)

    return call


_call_sums = _callable(_vote_sums, _sums, _save_sums, _sums_gradient)
_call_coupled = _callable(_coupled_sums, _coupled, _save_coupled, _coupled_gradient)
_call_coupled_backward = _callable(_coupled_sums_backward, _coupled_backward, _save_nothing, _refuse_second_derivative)
_call_statistics = _callable(_vote_statistics, moments_of_votes, _save_statistics, _statistics_gradient)
_call_sums_backward = _callable(_vote_sums_backward, _sums_backward, _save_nothing, _refuse_second_derivative)
_call_statistics_backward = _callable(
    _vote_statistics_backward, moment_gradients, _save_nothing, _refuse_second_derivative
)
