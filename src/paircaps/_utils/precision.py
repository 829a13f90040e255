"""Precision of computations: half precision is widened to float32 wherever many values are summed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T", bound=Tensor | tuple[Tensor, ...])

HALF = (torch.bfloat16, torch.float16)


def full_precision(dtype: torch.dtype) -> torch.dtype:
    """Precision to compute in: float32 for half precision, else the dtype itself."""
    return torch.float32 if dtype in HALF else dtype


def in_full_precision(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function of tensors so that it never computes in 8 or 11 bits of mantissa.

    bfloat16 and float16 arguments are widened to float32, and autocast is switched off inside, because the
    difference of two large sums (E5) and the log-likelihoods of EM lose everything in half precision. The result
    returns in the dtype of the first argument; under autocast it stays float32, as autocast's own reductions do.
    """
    first_name = next(iter(inspect.signature(function).parameters))

    @wraps(function)
    def widened(*args: P.args, **kwargs: P.kwargs) -> T:
        first: Any = args[0] if args else kwargs.get(first_name)
        if not isinstance(first, Tensor):
            return function(*args, **kwargs)  # which says what it expected
        autocast = autocast_enabled(first)
        run: Any = function
        with _no_autocast(first) if autocast else nullcontext():
            result = run(*map(_widen, args), **{name: _widen(value) for name, value in kwargs.items()})
        return result if autocast or first.dtype not in HALF else to_dtype(result, first.dtype)

    return widened


def without_autocast(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function of tensors so that autocast is off inside: it chooses its precision itself."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        first: Any = args[0]
        with _no_autocast(first) if autocast_enabled(first) else nullcontext():
            return function(*args, **kwargs)

    return called


def autocast_enabled(tensor: Tensor) -> bool:
    """Whether autocast is on for a tensor's device; the meta device, which has shapes only, has no autocast."""
    device = tensor.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _no_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    return torch.autocast(tensor.device.type, enabled=False)


def _widen(value: Any) -> Any:
    return value.to(full_precision(value.dtype)) if isinstance(value, Tensor) else value


def to_dtype(result: T, dtype: torch.dtype) -> T:
    """A tensor, or each tensor of a named tuple, in another precision."""
    parts: Any = result
    if isinstance(parts, Tensor):
        return parts.to(dtype)  # pyright: ignore[reportReturnType]
    return type(parts)(*(part.to(dtype) for part in parts))
