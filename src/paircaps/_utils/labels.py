"""Class indices: checks with clear messages, and one-hot codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from paircaps._utils.checks import shape_of


def require_indices(name: str, label: Tensor) -> None:
    """Refuse anything but a tensor of whole numbers."""
    if not isinstance(label, Tensor):
        raise TypeError(f"{name} must be a tensor of class indices, got {type(label).__name__}")
    if label.is_floating_point() or label.is_complex() or label.dtype == torch.bool:
        raise TypeError(f"{name} must hold class indices as integers, got {label.dtype}")


def require_classes(target: Tensor, activation: Tensor) -> Tensor:
    """Which classes are present, as 0 and 1, (..., J): the target itself if it has a value per class, else one-hot.

    Args:
        target: class indices, (...), or one value per class, (..., J).
        activation: one value per class, (..., J), whose shape and precision count.

    Raises:
        TypeError: if the target is no tensor, or holds no whole numbers where they are indices.
        ValueError: if it has another shape, or a class index that does not exist.
    """
    if not isinstance(target, Tensor):
        raise TypeError(f"target must be a tensor, got {type(target).__name__}")
    if target.shape == activation.shape:
        return target.to(activation.dtype)
    if target.shape != activation.shape[:-1]:
        raise ValueError(
            f"target must hold class indices of shape {tuple(activation.shape[:-1])} or one value per class of shape "
            f"{shape_of(activation)}, got {shape_of(target)}"
        )
    require_indices("target", target)
    return one_hot(target, activation.shape[-1], activation.dtype)


def one_hot(label: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """One-hot codes of class indices: (...) to (..., classes) of 0 and 1."""
    zeros = torch.zeros(*label.shape, classes, dtype=dtype, device=label.device)
    with explained(label, classes):
        return zeros.scatter(-1, label.long().unsqueeze(-1), 1.0)


@contextmanager
def explained(label: Tensor, classes: int) -> Iterator[None]:
    """Context that turns a failed indexing by ``label`` into an error that names the wrong index.

    A check before the indexing would cost a GPU a synchronisation, and vmap and export could not trace it; so the
    values are checked only once the indexing has failed.
    """
    try:
        yield
    except RuntimeError as error:
        low, high = int(label.min()), int(label.max())
        if low >= 0 and high < classes:
            raise
        wrong = low if low < 0 else high
        raise ValueError(f"class indices must lie in 0..{classes - 1}, got {wrong}") from error
