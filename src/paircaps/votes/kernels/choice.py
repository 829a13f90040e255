"""Which path computes the sums of FM agreement: the one place that decides.

The first path that can take the arguments does: the C kernel for processors, the Triton kernel for GPUs, else the tiles
of PyTorch, which can take any. ``PAIRCAPS_KERNEL=off`` leaves the tiles alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from paircaps._utils.checks import require_choice
from paircaps.errors import PaircapsError
from paircaps.votes.kernels.native import (
    library_problem,
    native_coupled_gradients,
    native_coupled_sums,
    native_gradients,
    native_refusal,
    native_sums,
)
from paircaps.votes.kernels.native_build import instructions
from paircaps.votes.kernels.triton_sums import card_problem, triton_gradients, triton_refusal, triton_sums
from paircaps.votes.tiled_sums import SumArguments, SumGradients, tiled_gradients, tiled_sums

SETTING = "PAIRCAPS_KERNEL"


class Path(NamedTuple):
    """A way to compute the sums and their gradients.

    Attributes:
        sums: computes S and Z from the arguments.
        gradients: computes the gradients from the arguments and those of S and Z.
        refusal: says why it cannot take some arguments; None if it can.
    """

    sums: Callable[[SumArguments], tuple[Tensor, Tensor]]
    gradients: Callable[[SumArguments, Tensor, Tensor], SumGradients]
    refusal: Callable[[SumArguments], str | None]


PATHS: dict[str, Path] = {
    "c": Path(native_sums, native_gradients, native_refusal),
    "triton": Path(triton_sums, triton_gradients, triton_refusal),
    "tiles": Path(tiled_sums, tiled_gradients, lambda arguments: None),
}
"""All paths, the fastest first; the last one takes any arguments."""


class CoupledPath(NamedTuple):
    """A way to compute coupled sums, for dynamic routing, and their gradients.

    Attributes:
        sums: computes the sums from the arguments and V.
        gradients: computes the gradient of V, and those of the arguments, from the arguments, V and that of the sums.
    """

    sums: Callable[[SumArguments, Tensor], Tensor]
    gradients: Callable[[SumArguments, Tensor, Tensor], tuple[Tensor, SumGradients]]


COUPLED: dict[str, CoupledPath] = {"c": CoupledPath(native_coupled_sums, native_coupled_gradients)}
"""Paths of coupled sums; where there is none, a routing gets dense votes of a few images."""

_forced: list[str] = []


def sums_of(arguments: SumArguments) -> tuple[Tensor, Tensor]:
    """S = Σ x û and Z = Σ (x û)² over the children, (B, J, K) each, in full precision, by the path of the arguments."""
    return PATHS[path_of(arguments)].sums(arguments)


def gradients_of(arguments: SumArguments, grad_sum: Tensor, grad_squares: Tensor) -> SumGradients:
    """Gradients of all tensors among the arguments, by the path of the arguments.

    Args:
        arguments: arguments of the sums.
        grad_sum: A, the gradient of S, (B, J, K).
        grad_squares: D, the gradient of Z, (B, J, K).
    """
    return PATHS[path_of(arguments)].gradients(arguments, grad_sum, grad_squares)


def path_of(arguments: SumArguments) -> str:
    """Name of the path that takes these arguments, a key of ``PATHS``."""
    return next(name for name in _allowed() if PATHS[name].refusal(arguments) is None)


def coupled_path(arguments: SumArguments) -> CoupledPath | None:
    """The path of coupled sums that takes these arguments; None if there is none."""
    return COUPLED.get(path_of(arguments))


def _allowed() -> list[str]:
    """Paths that may be taken, the fastest first."""
    if _forced:
        return [_forced[-1], "tiles"]
    return ["tiles"] if _setting() == "off" else list(PATHS)


def _setting() -> str:
    value = os.environ.get(SETTING, "").strip().lower() or "auto"
    if value not in ("auto", "off"):
        raise PaircapsError(f"{SETTING} must be 'auto' or 'off', got {value!r:.100}")
    return value


@contextmanager
def only(path: str) -> Iterator[None]:
    """Take one path, and the tiles where it refuses: for tests and benchmarks, in this process alone.

    Args:
        path: a key of ``PATHS``.
    """
    require_choice("path", path, PATHS)
    _forced.append(path)
    try:
        yield
    finally:
        _forced.pop()


class Kernel(NamedTuple):
    """A kernel, and whether it runs here.

    Attributes:
        name: ``"c"`` or ``"triton"``.
        runs: whether layers on its device use it.
        why: a sentence on what it is, or why it is not used.
    """

    name: str
    runs: bool
    why: str


def kernels() -> list[Kernel]:
    """The kernels of FM agreement, whether each runs here, and why; where none does, tiles of PyTorch are used.

    >>> [kernel.name for kernel in kernels()]
    ['c', 'triton']
    """
    return [
        _kernel("c", library_problem, lambda: f"compiled for {instructions()}, as PyTorch"),
        _kernel("triton", card_problem, torch.cuda.get_device_name),
    ]


def _kernel(name: str, problem_of: Callable[[], str | None], made_for: Callable[[], str]) -> Kernel:
    """A kernel, unless it is switched off or has a problem here."""
    problem = f"{SETTING} is off" if _setting() == "off" else problem_of()
    return Kernel(name, problem is None, problem or made_for())


def path_on(device: str) -> str:
    """The path of float32 layers on a device, in one phrase for logs, such as ``"c (AVX512)"`` or ``"tiles"``.

    Args:
        device: type of the device, such as ``"cpu"``.
    """
    if device == "cpu" and "c" in _allowed() and library_problem() is None:
        return f"c ({instructions()})"
    return "triton" if device == "cuda" and "triton" in _allowed() and card_problem() is None else "tiles"


def describe_kernels() -> str:
    """One line on which kernels run here and why."""
    told = (f"{kernel.name} {'used' if kernel.runs else 'not used'} ({kernel.why})" for kernel in kernels())
    return f"Kernels: {'; '.join(told)}"
