"""Memory in bytes: what a training step keeps, counted and not sampled, and what is free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn


def as_size(count: int) -> str:
    """Bytes as a person reads them."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.{1 if unit == 'MB' else 2}f} {unit}"
    return f"{count / 1e3:,.0f} kB"


def available_memory() -> int:
    """Bytes that are free, or could be; of a system that does not tell, 4 GB."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 4 << 30
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 4 << 30)


def bytes_for_backward(loss: Callable[[], Tensor], module: nn.Module) -> int:
    """Bytes that a forward pass keeps until its backward pass, each once, without the weights.

    Args:
        loss: a forward pass.
        module: whose weights are not counted, for they are there anyway.
    """
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = loss()
    total = sum(kept.values())
    del value  # until here nothing kept was freed, so no address was counted for two tensors
    return total
