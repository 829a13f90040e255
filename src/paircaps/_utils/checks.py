"""Checks of shapes and values, each with a sentence that quotes what was given and says what is allowed."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from numbers import Integral, Real
from typing import Protocol

import torch
from torch import Tensor

from paircaps.errors import DataError


class Shaped(Protocol):
    """A tensor, or lazy votes: anything with a shape."""

    @property
    def shape(self) -> torch.Size:
        """Sizes of all axes."""
        ...


def shape_of(tensor: Shaped) -> str:
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


def require_shape(name: str, value: object, shape: Sequence[int], why: str) -> None:
    """Refuse anything but a floating-point tensor of exactly this shape; ``why`` says where the shape comes from."""
    require_tensor(name, value, str(tuple(shape)), 0)
    assert isinstance(value, Tensor)
    if tuple(value.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, {why}, got {shape_of(value)}")


def require_votes(votes: object) -> None:
    """Votes are (..., I, J, K) with at least one child, one parent and one pose dimension."""
    require_tensor("votes", votes, "(..., children, parents, pose_dim)", 3)
    assert isinstance(votes, Tensor)
    if 0 in votes.shape[-3:]:
        raise ValueError(f"votes need at least one child, parent and pose dimension, got {shape_of(votes)}")


def require_child_activation(activation: object, votes: Shaped) -> None:
    """One activation a child: (..., I) beside votes of (..., I, J, K)."""
    require_shape("activation", activation, votes.shape[:-2], f"one value per child for votes of {shape_of(votes)}")


def require_children(children: object, votes: Shaped, in_dim: int | None) -> None:
    """The child capsules, (..., I, K_in) beside votes of (..., I, J, K); with any K_in if that is None."""
    require_tensor("children", children, "(..., children, in_dim)", 2)
    assert isinstance(children, Tensor)
    expected = (*votes.shape[:-2], children.shape[-1] if in_dim is None else in_dim)
    require_shape("children", children, expected, f"one capsule per child for votes of {shape_of(votes)}")


def require_positive(**values: object) -> None:
    """Refuse anything but whole numbers of one or more."""
    _require_at_least(1, values)


def require_not_negative(**values: object) -> None:
    """Refuse anything but whole numbers of zero or more."""
    _require_at_least(0, values)


def require_whole(**values: object) -> None:
    """Refuse anything but whole numbers, which may be negative."""
    _require_at_least(-math.inf, values)


def _require_at_least(least: float, values: dict[str, object]) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name} must be a whole number, got {value!r}")
        if int(value) < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def require_sizes(name: str, value: object, count: int | None = None) -> None:
    """Refuse anything but a tuple of whole numbers of one or more, ``count`` of them if that is given."""
    wanted = f"a tuple of {'whole numbers' if count is None else f'{count} whole numbers'}"
    if not isinstance(value, tuple | list):
        raise TypeError(f"{name} must be {wanted}, got {value!r}")
    if count is not None and len(value) != count:
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    for size in value:
        require_positive(**{name: size})


def require_bool(**values: object) -> None:
    """Refuse anything but True and False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}")


def require_within(name: str, value: object, least: float, most: float) -> None:
    """Refuse anything but a number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not least <= float(value) <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {value}")


def require_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Refuse a value that is not among the choices, and list them."""
    if value not in tuple(choices):
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be {'one of ' if len(choices) > 1 else ''}{allowed}, got {value!r}")


def height_and_width(name: str, size: object) -> tuple[int, int]:
    """A size as (height, width), from a side or a pair."""
    if isinstance(size, Integral) and not isinstance(size, bool):
        size = (size, size)
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise TypeError(f"{name} must be a side or (height, width), got {size!r}")
    require_sizes(name, size)
    return int(size[0]), int(size[1])


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


def require_memory(count: int, shape: Sequence[int], what: str) -> None:
    """Raise a DataError if images need more than three quarters of the machine's memory."""
    needed = count * torch.Size(shape).numel()
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > have * 3 // 4:
        raise DataError(
            f"{what} would take {needed / 2**30:.1f} GiB of memory, this machine has {have / 2**30:.1f}; "
            "take batches, or a limit"
        )
