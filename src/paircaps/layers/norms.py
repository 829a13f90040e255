"""Batch norm of capsules and of votes, and the running statistics of all batch norms of a network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paircaps._utils.checks import require_choice, require_positive, require_within, shape_of
from paircaps._utils.images import as_float
from paircaps.votes.fold_norm import Statistics

MOMENTUM = 0.1
"""Weight of a new batch in the running statistics: PyTorch's own. The paper's networks have 0.01, which their recipes
set: hundreds of steps pass before such a network predicts in eval mode as it does with the statistics of a batch."""

EPS = 1e-3
"""Constant added to each variance, in all models of the paper."""


VOTE_NORMS = ("pose", "vote", None)
"""Values of ``vote_norm``: one statistic per pose dimension, one per vote, no batch norm."""


class CapsuleNorm(nn.BatchNorm1d):
    """Batch norm with one statistic for each entry of the trailing axes, over all axes before them (E3).

    ``CapsuleNorm((K,))`` has one statistic per pose dimension, over batch, children and parents;
    ``CapsuleNorm((I, J, K))`` one for every single vote, over the batch alone.

    Args:
        shape: the trailing axes that keep their own statistics.
        momentum: weight of a new batch in the running statistics.
    """

    def __init__(self, shape: Sequence[int], momentum: float = MOMENTUM) -> None:
        require_within("momentum", momentum, 0, 1)
        super().__init__(math.prod(shape), eps=EPS, momentum=momentum)
        self.shape = tuple(shape)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a tensor.

        Args:
            input: a tensor whose last axes have the shape of this norm, with any number of axes before them.

        Returns:
            a tensor of the same shape.

        Raises:
            ValueError: if its last axes have another shape, or in training if there is one value for each statistic.
        """
        if tuple(input.shape[-len(self.shape) :]) != self.shape:
            raise ValueError(f"expected a tensor of (..., {str(self.shape)[1:]}, got {shape_of(input)}")
        self._require_several(input.numel() // self.num_features, shape_of(input))
        return super().forward(input.reshape(-1, self.num_features)).reshape(input.shape)

    def fold(self, statistics: Statistics, count: int) -> tuple[Tensor, Tensor]:
        """Scale and shift that equal :meth:`forward`, so that votes can be normalised by folding them into the weights.

        Args:
            statistics: computes mean and variance of this batch; called in training, when the running statistics
                follow them. In eval mode the running statistics are used.
            count: number of values in each statistic.

        Returns:
            scale and shift, each of the shape of this norm.
        """
        self._require_several(count, f"{count} of each")
        if not self.training:
            assert self.running_mean is not None
            assert self.running_var is not None
            # copies, for the next training step changes them before the backward pass of this one may have run
            return scale_and_shift(self, self.running_mean.clone(), self.running_var.clone(), self.shape)
        mean, variance = statistics()
        keep_statistics(self, mean, variance * (count / (count - 1)))
        return scale_and_shift(self, mean, variance, self.shape)

    def _require_several(self, count: int, given: str) -> None:
        if self.training and count == 1:
            raise ValueError(
                f"batch norm over single values of shape {self.shape} needs more than one image to train on, "
                f"got {given}; a model that only predicts belongs in eval mode"
            )

    def extra_repr(self) -> str:
        """The shape, for print(model)."""
        return f"{self.shape}, eps={self.eps}, momentum={self.momentum}"


def create_vote_norm(
    vote_norm: str | None, in_capsules: int, out_capsules: int, pose_dim: int, momentum: float = MOMENTUM
) -> nn.Module:
    """Build the batch norm of votes (E3).

    Args:
        vote_norm: ``"pose"`` for one statistic per pose dimension, ``"vote"`` for one per vote, None for an identity.
        in_capsules: I, the number of children.
        out_capsules: J, the number of parents.
        pose_dim: K of a vote.
        momentum: weight of a new batch in the running statistics.
    """
    require_choice("vote_norm", vote_norm, VOTE_NORMS)
    if vote_norm is None:
        return nn.Identity()
    return CapsuleNorm((pose_dim,) if vote_norm == "pose" else (in_capsules, out_capsules, pose_dim), momentum)


# --- running statistics ----------------------------------------------------------------------------------------------


def set_norm_momentum(module: nn.Module, momentum: float) -> None:
    """Set the weight of a new batch in the running statistics, in every batch norm of a module.

    Args:
        module: a layer or a whole network.
        momentum: the weight, from 0 to 1.
    """
    require_within("norm_momentum", momentum, 0, 1)
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            part.momentum = momentum


@contextmanager
def settling(module: nn.Module) -> Iterator[None]:
    """Context in which batch norm's running statistics become the plain mean over all batches that are computed in it.

    The module is in train mode there, and has no gradients. Afterwards it has its momenta and modes of before; after an
    error it has its statistics of before, too.

    Args:
        module: network whose batch norms are settled.
    """
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    modes = [(part, part.training) for part in module.modules()]
    before = [{name: value.clone() for name, value in norm.named_buffers(recurse=False)} for norm in norms]
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean of all batches
        module.train()
        with torch.no_grad():
            yield
    except BaseException:
        for norm, buffers in zip(norms, before, strict=True):
            for name, value in buffers.items():
                norm.get_buffer(name).copy_(value)
        raise
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for part, mode in modes:
            part.training = mode


def settle(model: nn.Module, batches: Iterable[object], limit: int | None = None) -> None:
    """Recompute the running statistics of batch norm from some training batches, with the weights as they are.

    In eval mode a network uses running statistics, which lag behind its weights: they are means over past steps. This
    replaces them by the mean over the given batches, so that the network predicts as it did in the last training step.
    A dozen batches are enough. After an error the statistics are as they were.

    >>> from paircaps import create_model
    >>> model = create_model("resnet-caps-small").eval()
    >>> batches = [torch.rand(8, 1, 28, 28) for _ in range(2)]  # or a DataLoader
    >>> settle(model, batches, limit=12)

    Args:
        model: network to settle; its weights and its mode stay.
        batches: inputs (B, ...), tuples that begin with them, as a DataLoader gives, or batches of ``paircaps.data``.
        limit: most batches to take; None for all of them.

    Raises:
        ValueError: if there is no batch, or the statistics of one are not finite.
    """
    if limit is not None:
        require_positive(limit=limit)
    count = 0
    with settling(model):
        for batch in islice(batches, limit):
            images = batch[0] if isinstance(batch, tuple | list) else getattr(batch, "images", batch)
            if not isinstance(images, Tensor):
                raise TypeError(
                    f"a batch to settle with is a tensor, a tuple that begins with one, or a batch of paircaps.data, "
                    f"got {type(images).__name__}"
                )
            model(as_float(images))
            count += 1
        if not count:
            raise ValueError("settle needs one batch at least, got none")
        for name, value in model.named_buffers():
            if "running_" in name and not bool(value.isfinite().all()):
                raise ValueError(f"settle: the statistics of these batches are not finite, in {name}")


def scale_and_shift(norm: _BatchNorm, mean: Tensor, variance: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Batch norm with given statistics, as y = scale · x + shift.

    Args:
        norm: batch norm with its weight, bias and ε.
        mean: mean to subtract.
        variance: variance to divide by.
        shape: shape of the results.
    """
    dtype = torch.promote_types(mean.dtype, norm.weight.dtype)
    # in float64: the derivative of 1/σ is 1/σ³, which overflows float32 for votes of 1e14
    precise = dtype if mean.device.type == "mps" else torch.float64
    mean, variance = mean.flatten().to(precise), variance.flatten().to(precise)
    scale = (variance + norm.eps).rsqrt() * norm.weight
    return scale.to(dtype).view(shape), (norm.bias - mean * scale).to(dtype).view(shape)


@torch.no_grad()
def keep_statistics(norm: _BatchNorm, mean: Tensor, unbiased: Tensor) -> None:
    """Update the running statistics of a batch norm with those of a batch, as PyTorch does; nothing if it keeps none.

    Args:
        norm: batch norm.
        mean: mean of the batch.
        unbiased: variance of the batch, divided by the count minus one.
    """
    if not norm.track_running_stats:
        return
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    share = 1 / norm.num_batches_tracked if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean.flatten().to(norm.running_mean.dtype), share)
    norm.running_var.lerp_(unbiased.flatten().to(norm.running_var.dtype), share)
