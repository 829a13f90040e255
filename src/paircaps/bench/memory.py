"""Memory in bytes: free memory, memory kept for the backward pass, and sizes as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn


def available_memory() -> int:
    """Bytes of memory that are available on this machine; 4 GiB where the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 4 << 30
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 4 << 30)


def bytes_for_backward(loss: Callable[[], Tensor], module: nn.Module) -> int:
    """Bytes that a forward pass saves for its backward pass; shared memory counts once, weights do not count.

    Args:
        loss: function that runs the forward pass and returns the loss.
        module: module whose weights do not count, since they are in memory anyway.
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
    del value  # freed only now: until here no address could be used for two tensors
    return total
