"""Checks of shapes and values, each with a sentence that quotes what was given and says what is allowed."""

from __future__ import annotations

import math
from collections.abc import Collection

from torch import Tensor


def shape_of(tensor: Tensor) -> str:
    """Shape as it is written in messages: ``(2, 3, 4)``."""
    return str(tuple(tensor.shape))


def require_tensor(name: str, value: object, axes: str, rank: int) -> None:
    """Refuse anything but a floating-point tensor of at least ``rank`` axes, named by ``axes``."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor of shape {axes}, got {type(value).__name__}")
    if value.dim() < rank:
        raise ValueError(f"{name} must have shape {axes}, got {shape_of(value)}: {value.dim()} axes are too few")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {value.dtype}")


def require_votes(votes: object) -> None:
    """Votes are (..., I, J, K) with at least one child, one parent and one pose dimension."""
    require_tensor("votes", votes, "(..., children, parents, pose_dim)", 3)
    assert isinstance(votes, Tensor)
    if 0 in votes.shape[-3:]:
        raise ValueError(f"votes need at least one child, parent and pose dimension, got {shape_of(votes)}")


def require_child_activation(activation: Tensor, votes: Tensor) -> None:
    """One activation a child: (..., I) beside votes of (..., I, J, K)."""
    expected = tuple(votes.shape[:-2])
    if tuple(activation.shape) != expected:
        raise ValueError(
            f"activation must have one value a child, shape {expected} for votes of {shape_of(votes)}, "
            f"got {shape_of(activation)}"
        )


def require_positive(**values: int) -> None:
    """Refuse anything but whole numbers of one or more."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be a whole number, got {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def require_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Refuse a value that is not among the choices, and list them."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def square_side(pose_dim: int) -> int:
    """√K of a pose that is read as a square matrix."""
    side = math.isqrt(pose_dim)
    if side * side != pose_dim:
        near = side * side, (side + 1) ** 2
        raise ValueError(
            f"matrix votes read a pose as a square matrix, so pose_dim must be a square number, got {pose_dim} "
            f"(nearest: {near[0]} and {near[1]}); vector votes take any pose_dim"
        )
    return side
