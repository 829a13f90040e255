"""Class indices: checks with clear messages, and one-hot codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def require_indices(name: str, label: Tensor) -> None:
    """Refuse anything but a tensor of whole numbers."""
    if not isinstance(label, Tensor):
        raise TypeError(f"{name} must be a tensor of class indices, got {type(label).__name__}")
    if label.is_floating_point() or label.is_complex() or label.dtype == torch.bool:
        raise TypeError(f"{name} must hold class indices as integers, got {label.dtype}")


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
