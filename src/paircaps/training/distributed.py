"""Several processes as one: started by torchrun, joined by gloo on CPUs and nccl on GPUs.

Sums, bytes and decisions travel as CPU tensors over gloo, so that every process decides alike and no pickle is needed;
gradients travel by DistributedDataParallel, over the backend of the device.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from paircaps.errors import TrainingError
from paircaps.layers.norms import CapsuleNorm, keep_statistics, scale_and_shift
from paircaps.votes.fold_norm import Statistics

PATIENCE = timedelta(minutes=10)
"""How long a process waits for the others; one that dies is noticed at once, for its connections close."""


@dataclass(frozen=True)
class Processes:
    """One process among all of them.

    Args:
        rank: its number.
        world_size: how many there are.
        local_rank: its number on this machine.
        group: over which CPU tensors travel.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    group: Any = None

    @property
    def first(self) -> bool:
        """Whether this is the one that writes files and talks."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each value added up over all processes."""
        if self.world_size == 1:
            return [float(value) for value in values]
        return self.sum_tensor(torch.tensor(values, dtype=torch.float64)).tolist()

    def sum_tensor(self, values: Tensor) -> Tensor:
        """A CPU tensor added up over all processes."""
        if self.world_size > 1:
            dist.all_reduce(values, group=self.group)
        return values

    def share(self, content: bytes | None) -> bytes:
        """Bytes of the first process, at every process."""
        if self.world_size == 1:
            assert content is not None
            return content
        size = torch.tensor([len(content) if content is not None else 0])
        dist.broadcast(size, 0, group=self.group)
        data = torch.empty(int(size), dtype=torch.uint8)
        if content:
            data = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        if len(data):
            dist.broadcast(data, 0, group=self.group)
        return data.numpy().tobytes()

    @contextmanager
    def first_only(self) -> Iterator[bool]:
        """A block for the first process; the others wait for it, and stop too if it fails.

        Yields whether this is the first one.
        """
        error: BaseException | None = None
        try:
            yield self.first
        except BaseException as raised:
            error = raised
            raise
        finally:
            failed = self.sum([error is not None])[0] if self.world_size > 1 else 0
            if failed and error is None:
                raise TrainingError("another process could not go on; its message says why")

    def wrap(self, module: nn.Module, device: torch.device) -> nn.Module:
        """The module with its gradients averaged over all processes."""
        if self.world_size == 1:
            return module
        devices = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(module, devices, broadcast_buffers=False)


@contextmanager
def joined_processes(device_type: str) -> Iterator[Processes]:
    """Join the processes that torchrun started, or be the only one."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield Processes()
        return
    backend = "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo"
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend, timeout=PATIENCE)
    try:
        group = dist.new_group(backend="gloo", timeout=PATIENCE)
        yield Processes(dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"]), group)
    finally:
        dist.destroy_process_group()


def is_lost_peer(error: Exception) -> bool:
    """Whether an error says that another process is gone."""
    text = str(error).lower()
    return dist.is_initialized() and any(word in text for word in ("gloo", "nccl", "connection", "peer", "timed out"))


class _Sum(torch.autograd.Function):
    """A sum over all processes, through which gradients flow back: they are summed on their way too."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        value = value.clone()
        dist.all_reduce(value)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient


class SyncedNorm(_BatchNorm):
    """Batch norm over the images of all processes, with the weights and statistics of another batch norm.

    PyTorch's own does this on GPUs only. With it two processes of 64 images compute what one of 128 does.

    Args:
        norm: the one it takes the place of.
    """

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        self.weight, self.bias = norm.weight, norm.bias
        self.running_mean, self.running_var = norm.running_mean, norm.running_var
        self.num_batches_tracked = norm.num_batches_tracked
        self.flat = isinstance(norm, CapsuleNorm)
        self.shape = norm.shape if isinstance(norm, CapsuleNorm) else (norm.num_features,)
        self.train(norm.training)

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (B, C, ...), or of capsules (..., *shape)."""
        x = input.reshape(-1, self.num_features) if self.flat else input
        if not self.training:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            ).reshape(input.shape)
        shape = (1, -1, *([1] * (x.dim() - 2)))
        mean, variance = self._statistics(x.float(), shape)
        scale = (variance + self.eps).rsqrt() * self.weight
        out = (x.float() - mean.view(shape)) * scale.view(shape) + self.bias.view(shape)
        return out.to(input.dtype).reshape(input.shape)

    def _statistics(self, x: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Mean and variance of each channel over all processes, in two passes, for the one-pass form cancels."""
        over = [axis for axis in range(x.dim()) if axis != 1]
        count = x.new_tensor([x.numel() / self.num_features])
        dist.all_reduce(count)
        mean = _Sum.apply(x.sum(over)) / count
        variance = _Sum.apply((x - mean.view(shape)).square().sum(over)) / count
        keep_statistics(self, mean, variance * count / (count - 1).clamp_min(1))
        return mean, variance

    def fold(self, statistics: Statistics, count: int) -> tuple[Tensor, Tensor]:
        """What :meth:`forward` does to capsules, as a scale and a shift, from this process's statistics."""
        if not self.training:
            assert self.running_mean is not None
            assert self.running_var is not None
            return scale_and_shift(self, self.running_mean.clone(), self.running_var.clone(), self.shape)
        mean, variance = statistics()
        everywhere = mean.new_tensor([count])
        dist.all_reduce(everywhere)
        share = count / everywhere
        common = _Sum.apply(mean * share)
        variance = _Sum.apply((variance + (mean - common).square()) * share)
        keep_statistics(self, common, variance * everywhere / (everywhere - 1).clamp_min(1))
        return scale_and_shift(self, common, variance, self.shape)


def synchronise_norms(module: nn.Module) -> None:
    """Put a :class:`SyncedNorm` in place of every batch norm of a module."""
    for name, child in module.named_children():
        if isinstance(child, _BatchNorm):
            setattr(module, name, SyncedNorm(child))
        else:
            synchronise_norms(child)
