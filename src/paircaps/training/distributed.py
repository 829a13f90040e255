"""Training in several processes, started by torchrun and connected by gloo on CPUs and nccl on GPUs.

Sums, bytes and decisions are exchanged as CPU tensors over gloo, so that every process decides alike and no pickle is
needed; DistributedDataParallel exchanges gradients, over the backend of the device.
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
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from paircaps.errors import TrainingError
from paircaps.layers.norms import CapsuleNorm, keep_statistics, scale_and_shift
from paircaps.votes.fold_norm import Statistics

PATIENCE = timedelta(minutes=10)
"""Longest time that a process waits for the others to start and to load their images; afterwards it is ``run.timeout``.

A dead process is noticed at once, because its connections close; a cut link is noticed by the time alone.
"""


@dataclass(frozen=True)
class Processes:
    """Rank of this process among all processes of a training, and how they exchange data.

    Args:
        rank: number of this process, from 0.
        world_size: number of processes.
        local_rank: number of this process among those of its machine.
        group: process group for CPU tensors; None with one process.
        parent: process that started this one, if that was torchrun.
        patient: process group whose members wait for each other longer; None with one process.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    group: Any = None
    parent: int | None = None
    patient: Any = None

    @property
    def first(self) -> bool:
        """True on rank 0."""
        return self.rank == 0

    def parent_is_lost(self) -> bool:
        """True if torchrun has ended, killed for instance: nobody would end this process any more."""
        return self.parent is not None and os.getppid() != self.parent

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sum of each value over all processes."""
        if self.world_size == 1:
            return [float(value) for value in values]
        return self.sum_tensor(torch.tensor(values, dtype=torch.float64)).tolist()

    def sum_tensor(self, values: Tensor) -> Tensor:
        """Sum a CPU tensor over all processes, in place, and return it."""
        if self.world_size > 1:
            dist.all_reduce(values, group=self.group)
        return values

    def share(self, content: bytes | None) -> bytes:
        """Send bytes from rank 0 to all processes.

        Args:
            content: bytes to send on rank 0; ignored on the others.

        Returns:
            The bytes of rank 0.
        """
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

    def meet(self) -> None:
        """Wait for all processes, with patience: until each has loaded its images, for instance."""
        if self.world_size > 1:
            dist.all_reduce(torch.zeros(1), group=self.patient)

    @contextmanager
    def first_only(self, patient: bool = False) -> Iterator[bool]:
        """Context manager for work of rank 0: the others wait for it, and raise an error if it fails.

        Args:
            patient: True for work that may take minutes.

        Yields:
            True on rank 0.
        """
        error: BaseException | None = None
        try:
            yield self.first
        except BaseException as raised:
            error = raised
            raise
        finally:
            if patient:
                self.meet()
            failed = self.sum([error is not None])[0] if self.world_size > 1 else 0
            if failed and error is None:
                raise TrainingError("another process could not go on; its message says why")

    def wrap(self, module: nn.Module, device: torch.device) -> nn.Module:
        """The module, with gradients averaged over all processes.

        Not all parameters need to have one: activations of hidden capsules, for instance, are read by some routings
        only.
        """
        if self.world_size == 1:
            return module
        devices = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(module, devices, broadcast_buffers=False, find_unused_parameters=True)


@contextmanager
def joined_processes(device_type: str, timeout: float) -> Iterator[Processes]:
    """Connect the processes that torchrun started; without torchrun there is one process.

    Args:
        device_type: ``"cpu"``, ``"cuda"`` or ``"mps"``.
        timeout: seconds that a process waits for the others, once all have started.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield Processes()
        return
    parent = os.getppid()
    backend = "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo"
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # machines differ in how long they take to import PyTorch: the time counts from when all are here
    store, rank, world_size = next(rendezvous("env://", timeout=PATIENCE))
    store.set(f"here/{rank}", "")
    store.wait([f"here/{other}" for other in range(world_size)], PATIENCE)
    wait = timedelta(seconds=timeout)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=wait)
    try:
        group = dist.new_group(backend="gloo", timeout=wait)
        patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        yield Processes(rank, world_size, int(os.environ["LOCAL_RANK"]), group, parent, patient)
    finally:
        dist.destroy_process_group()


def is_lost_peer(error: Exception) -> bool:
    """True if an error says that another process of the training is gone."""
    text = str(error).lower()
    return dist.is_initialized() and any(word in text for word in ("gloo", "nccl", "connection", "peer", "timed out"))


class _Sum(torch.autograd.Function):
    """Differentiable sum over all processes; its gradient is the sum of the gradients of all processes."""

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
    """Batch norm over the images of all processes: two processes with 64 images each compute what one with 128 does.

    Hand-written because :class:`torch.nn.SyncBatchNorm` works on GPUs only and cannot be folded into votes, as
    :meth:`fold` can.

    Args:
        norm: batch norm to replace, whose weights and statistics are used.
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
        """Normalise images (B, C, ...), or capsules (..., *shape)."""
        x = input.reshape(-1, self.num_features) if self.flat else input
        if not self.training:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            ).reshape(input.shape)
        shape = (1, -1, *([1] * (x.dim() - 2)))
        mean, variance = self._statistics(x.float(), shape)
        scale = (variance + self.eps).rsqrt()
        if self.affine:
            scale = scale * self.weight
        out = (x.float() - mean.view(shape)) * scale.view(shape)
        if self.affine:
            out = out + self.bias.view(shape)
        return out.to(input.dtype).reshape(input.shape)

    def _statistics(self, x: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Mean and variance of each channel over all processes; in two passes, because E[x²] − E[x]² cancels."""
        over = [axis for axis in range(x.dim()) if axis != 1]
        count = x.new_tensor([x.numel() / self.num_features])
        dist.all_reduce(count)
        mean = _Sum.apply(x.sum(over)) / count
        variance = _Sum.apply((x - mean.view(shape)).square().sum(over)) / count
        keep_statistics(self, mean, variance * count / (count - 1).clamp_min(1))
        return mean, variance

    def fold(self, statistics: Statistics, count: int) -> tuple[Tensor, Tensor]:
        """Scale and shift that do to capsules what :meth:`forward` does.

        Args:
            statistics: returns mean and variance over the capsules of this process.
            count: number of values per channel in this process.
        """
        if not self.training:
            assert self.running_mean is not None
            assert self.running_var is not None
            return scale_and_shift(self, self.running_mean.clone(), self.running_var.clone(), self.shape)
        # mean and variance over all processes from those of each: the law of total variance
        own_mean, own_variance = statistics()
        total = own_mean.new_tensor([count])
        dist.all_reduce(total)
        share = count / total
        mean = _Sum.apply(own_mean * share)
        variance = _Sum.apply((own_variance + (own_mean - mean).square()) * share)
        keep_statistics(self, mean, variance * total / (total - 1).clamp_min(1))
        return scale_and_shift(self, mean, variance, self.shape)


def synchronise_norms(module: nn.Module) -> None:
    """Replace every batch norm of a module by a :class:`SyncedNorm`."""
    for name, child in module.named_children():
        if isinstance(child, _BatchNorm):
            setattr(module, name, SyncedNorm(child))
        else:
            synchronise_norms(child)
