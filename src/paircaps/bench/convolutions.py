"""The convolutions of a training step alone: the limit of a step's speed, if all else took no time.

Each convolution of a network is noted while a step runs, by a hook: its input, its weights, and which gradients it
needs. It is then run alone, forward and backward, on the same shapes, in the same precision and memory format.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paircaps.bench.train_step import TrainStep
from paircaps.models.fast import WhiteningStem

CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d, WhiteningStem)
"""Modules that are convolutions, or hold the weights of one."""


@dataclass(frozen=True)
class Convolution:
    """One call of a convolution; calling this runs it forward and backward.

    Args:
        module: a copy of the convolution, in the precision of the computation.
        input: its input, (B, C, H, W); it requires a gradient if it did in the step.
        gradient: gradient of its output.
    """

    module: nn.Module
    input: Tensor
    gradient: Tensor

    def __call__(self) -> None:
        """Compute the output, and the gradients that a step needs."""
        torch.autograd.grad(self.module(self.input), self._inputs(), self.gradient)

    def _inputs(self) -> list[Tensor]:
        """Tensors whose gradients are computed."""
        return [tensor for tensor in (self.input, *self.module.parameters()) if tensor.requires_grad]


@dataclass(frozen=True)
class Convolutions:
    """All convolutions of a step; calling this runs them one after the other.

    Args:
        calls: the convolutions, in the order of the forward pass.
    """

    calls: tuple[Convolution, ...]

    def __call__(self) -> None:
        """Run every convolution forward and backward."""
        for call in self.calls:
            call()


def convolutions_of(step: TrainStep) -> Convolutions:
    """Note the convolutions of a training step, whose forward pass is run once.

    Args:
        step: training step, with its network and one batch.
    """
    calls: list[Convolution] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append(_alone(module, inputs[0], step.half or inputs[0].dtype))

    with _hooks_on_convolutions(step.objective, note):
        step.forward()
    return Convolutions(tuple(calls))


@contextmanager
def _hooks_on_convolutions(network: nn.Module, hook: Any) -> Iterator[None]:
    """Context in which a hook is called after every convolution of a network."""
    with ExitStack() as stack:
        for part in network.modules():
            if isinstance(part, CONVOLUTIONS):
                stack.enter_context(part.register_forward_hook(hook))
        yield


def _alone(module: nn.Module, images: Tensor, dtype: torch.dtype) -> Convolution:
    """A convolution to run alone.

    Args:
        module: convolution of the network, or stem that holds one.
        images: its input.
        dtype: precision that it computes in.
    """
    alone = _stem_convolution(module) if isinstance(module, WhiteningStem) else copy.deepcopy(module)
    alone._forward_hooks.clear()
    alone = alone.to(dtype)
    own_input = images.detach().to(dtype).requires_grad_(images.requires_grad)
    with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        gradient = torch.ones_like(alone(own_input))
    return Convolution(alone, own_input, gradient)


def _stem_convolution(stem: WhiteningStem) -> nn.Conv2d:
    """The convolution of a whitening stem, whose bias alone is trained."""
    alone = nn.Conv2d(stem.in_channels, stem.out_channels, stem.KERNEL)
    alone.weight = nn.Parameter(stem.weight.detach().clone(), requires_grad=False)
    alone.bias = nn.Parameter(stem.bias.detach().clone())
    return alone
