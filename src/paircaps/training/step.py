"""One step of training: forward, backward, a look at whether the numbers are finite, and only then the update."""

from __future__ import annotations

import contextlib
import math
import signal as signal_number
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paircaps.data import Batch
from paircaps.losses import Objective
from paircaps.training.distributed import Processes
from paircaps.training.recipe import Recipe
from paircaps.training.state import State, Sums

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
FIRST_SCALE, LEAST_SCALE, GROW_AFTER = 2.0**16, 2.0**-10, 2000
"""Of the loss under fp16: halved when gradients overflow, doubled after so many steps that went well."""


class NotFinite(Exception):  # noqa: N818 (it is caught and told in words)
    """A loss or gradient that is infinite or no number at all; weights are as they were before the step.

    Args:
        loss: an image, over all processes.
        gradient: its length.
    """

    def __init__(self, loss: float, gradient: float) -> None:
        what = "the loss" if not math.isfinite(loss) else "the gradient"
        super().__init__(f"{what} is not finite: loss {loss}, length of the gradient {gradient}")
        self.loss, self.gradient = loss, gradient


class Stepper:
    """Takes steps.

    Args:
        recipe: with precision, accumulation, clipping.
        objective: what to train for.
        state: that the steps change.
        processes: that take each step together.
        device: to compute on.
        memory_format: of images.
    """

    def __init__(
        self,
        recipe: Recipe,
        objective: Objective,
        state: State,
        processes: Processes,
        device: torch.device,
        memory_format: torch.memory_format,
    ) -> None:
        self.recipe, self.objective, self.state, self.processes = recipe, objective, state, processes
        self.device, self.format = device, memory_format
        self.parameters = [p for p in objective.parameters() if p.requires_grad]
        module: Any = torch.compile(objective) if recipe.train.compile else objective
        self.module: nn.Module = processes.wrap(module, device)
        if recipe.train.precision == "fp16" and state.counters.step == 0:
            state.counters.scale = FIRST_SCALE

    def __call__(self, batch: Batch, images: int, lr: float, stop: int = 0) -> tuple[Sums, float, int]:
        """Take a step.

        Args:
            batch: this process's share of the images.
            images: how many all processes have.
            lr: learning rate.
            stop: a signal that this process was sent, or 0.

        Returns:
            what it came to over all processes, the length of the gradient, and the signal that any was sent, or 0.

        Raises:
            NotFinite: before the update.
        """
        self.objective.train()
        self.state.optimiser.zero_grad()
        loss, drawing, right = self.forward_backward(batch, images)
        loss, drawing, right, sent = self.processes.sum([loss, drawing, right, float(stop > 0)])
        gradient = self.gradient_length()
        if self._update(loss, gradient, images, lr) and self.state.average is not None:
            self.state.average.update(self.objective.network)
        signal = (stop or signal_number.SIGTERM) if sent else 0  # another process was sent it: its start ends too
        return Sums(images, loss, drawing, round(right)), gradient, signal

    def forward_backward(self, batch: Batch, images: int) -> tuple[float, float, float]:
        """The sums of loss, of its drawing part, and of images that are right, over this process's share."""
        count = self.recipe.train.accumulate
        tensors = batch.images, batch.targets, batch.reconstruction_target
        parts = list(zip(*(tensor.tensor_split(count) for tensor in tensors), strict=True))
        if self.processes.world_size == 1:
            parts = [part for part in parts if len(part[0])]
        # gradients are averaged over processes, and each has but its share of the sum
        factor = self.state.counters.scale * self.processes.world_size / images
        totals: list[Tensor] = []
        for number, part in enumerate(parts, 1):
            with self._no_sync(number < len(parts)), self._autocast():
                outcome = self.module(*self._to_device(part))
                (outcome.loss * factor).backward()
            totals.append(torch.stack([value.detach().float() for value in outcome]))
        loss, drawing, right = torch.stack(totals).cpu().double().sum(0).tolist()
        return loss, drawing, right

    def _to_device(self, part: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        images, labels, originals = (tensor.to(self.device) for tensor in part)
        return images.contiguous(memory_format=self.format), labels, originals

    def _autocast(self) -> Any:
        half = _HALF.get(self.recipe.train.precision)
        return torch.autocast(self.device.type, half) if half else contextlib.nullcontext()

    def _no_sync(self, more_to_come: bool) -> Any:
        if more_to_come and isinstance(self.module, DistributedDataParallel):
            return self.module.no_sync()
        return contextlib.nullcontext()

    def gradient_length(self) -> float:
        """Of all weights together, with the scale of fp16 taken out."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        return float(nn.utils.get_total_norm(gradients)) / self.state.counters.scale

    def _update(self, loss: float, gradient: float, images: int, lr: float) -> bool:
        """Change the weights; under fp16 an overflow lowers the scale instead. Whether they were changed."""
        counters, clip = self.state.counters, self.recipe.optimiser.clip_norm
        half = self.recipe.train.precision == "fp16"
        if not math.isfinite(loss) or not math.isfinite(gradient):
            if half and math.isfinite(loss) and counters.scale > LEAST_SCALE:
                counters.scale, counters.good_steps = counters.scale / 2, 0
                return False
            raise NotFinite(loss / images, gradient)
        factor = min(1.0, clip / (gradient + 1e-12)) if clip else 1.0
        if factor / counters.scale != 1.0:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor / counters.scale)
        for group in self.state.optimiser.param_groups:
            group["lr"] = lr
        self.state.optimiser.step()
        counters.good_steps += 1
        if half and counters.good_steps >= GROW_AFTER:
            counters.scale, counters.good_steps = min(counters.scale * 2, FIRST_SCALE), 0
        return True
