"""One training step: forward, backward, check that loss and gradient are finite, and only then the update."""

from __future__ import annotations

import contextlib
import math
import signal as signal_number
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from paircaps.data import Batch
from paircaps.losses import Objective
from paircaps.training.distributed import Processes
from paircaps.training.optimiser import set_rates
from paircaps.training.recipe import Recipe
from paircaps.training.state import State, Sums

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions of autocast, by the values of ``train.precision``."""

FIRST_SCALE, LEAST_SCALE, GROW_AFTER = 2.0**16, 2.0**-10, 2000
"""First and highest scale of the loss under fp16, the lowest one, and the steps without overflow before it doubles."""


class NotFinite(Exception):  # noqa: N818 (the loop turns it into a TrainingError)
    """Error of a step whose loss or gradient is not finite; the weights are as they were before the step.

    Args:
        loss: mean loss per image, over all processes.
        gradient: norm of the gradient.
    """

    def __init__(self, loss: float, gradient: float) -> None:
        what = "the loss" if not math.isfinite(loss) else "the gradient"
        super().__init__(f"{what} is not finite: loss {loss}, length of the gradient {gradient}")
        self.loss, self.gradient = loss, gradient


class Stepper:
    """Takes training steps.

    Args:
        recipe: for precision, accumulation and clipping.
        objective: network and loss.
        state: state of the training, which every step changes; if it was restored, restored before this.
        processes: all processes, which take each step together.
        device: where to compute.
        memory_format: of the images.
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
        self.scaler = self._create_scaler()

    def __call__(self, batch: Batch, images: int, rate: float, stop: int = 0) -> tuple[Sums, float, int]:
        """Take a step.

        Args:
            batch: share of this process in the images of the step.
            images: number of images of the step in all processes.
            rate: learning rate of the schedule, as a share of the highest.
            stop: number of the signal that this process received; 0 for none.

        Returns:
            Sums over all images of the step, the norm of the gradient, and the number of the signal that any process
            received, 0 for none.

        Raises:
            NotFinite: before the update, if the loss or the gradient is not finite.
        """
        self.objective.train()
        self.state.optimiser.zero_grad()
        loss, drawing, right = self.forward_backward(batch, images)
        loss, drawing, right, sent = self.processes.sum([loss, drawing, right, float(stop > 0)])
        gradient = self.gradient_norm()
        if self._update(loss, gradient, images, rate) and self.state.average is not None:
            self.state.average.update_parameters(self.objective.network)
        signal = (stop or signal_number.SIGTERM) if sent else 0  # a signal to one process stops all of them
        return Sums(images, loss, drawing, round(right)), gradient, signal

    def forward_backward(self, batch: Batch, images: int) -> tuple[float, float, float]:
        """Compute gradients, in ``train.accumulate`` parts.

        Args:
            batch: share of this process in the images of the step.
            images: number of images of the step in all processes.

        Returns:
            Sums over the share of this process: loss, the reconstruction's part of it, images that are right.
        """
        count = self.recipe.train.accumulate
        parts = list(zip(*(tensor.tensor_split(count) for tensor in batch.learned), strict=True))
        if self.processes.world_size == 1:
            parts = [part for part in parts if len(part[0])]
        # mean over all images: gradients are averaged over the processes, each of which sums over its own share
        factor = self.processes.world_size / images
        totals: list[Tensor] = []
        for number, part in enumerate(parts, 1):
            with self._no_sync(number < len(parts)), self._autocast():
                outcome = self.module(*self._to_device(part))
                self.scaler.scale(outcome.loss * factor).backward()
            totals.append(torch.stack([value.detach().float() for value in outcome]))
        loss, drawing, right = torch.stack(totals).cpu().double().sum(0).tolist()
        return loss, drawing, right

    def _to_device(self, part: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        images, *others = (tensor.to(self.device) for tensor in part)
        return images.contiguous(memory_format=self.format), *others

    def _autocast(self) -> Any:
        half = HALF.get(self.recipe.train.precision)
        return torch.autocast(self.device.type, half) if half else contextlib.nullcontext()

    def _no_sync(self, more_to_come: bool) -> Any:
        if more_to_come and isinstance(self.module, DistributedDataParallel):
            return self.module.no_sync()
        return contextlib.nullcontext()

    def gradient_norm(self) -> float:
        """Divide the gradients by the scale of fp16, and return their norm over all weights together."""
        self.scaler.unscale_(self.state.optimiser)
        return float(nn.utils.get_total_norm(self._gradients()))

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self.parameters if p.grad is not None]

    def _update(self, loss: float, gradient: float, images: int, rate: float) -> bool:
        """Change the weights, or under fp16 lower the scale if gradients overflowed; True if the weights changed."""
        optimiser, finite = self.state.optimiser, math.isfinite(loss) and math.isfinite(gradient)
        if not finite and not (math.isfinite(loss) and self._overflowed()):
            raise NotFinite(loss / images, gradient)
        if finite:
            self._clip(gradient)
            set_rates(optimiser, rate)
            self.scaler.step(optimiser)
        self._update_scale()
        return finite

    def _clip(self, gradient: float) -> None:
        """Shorten the gradients, whose norm is given, to ``optimiser.clip_norm``."""
        longest = self.recipe.optimiser.clip_norm
        if longest and gradient + 1e-12 > longest:
            for values in self._gradients():
                values.mul_(longest / (gradient + 1e-12))

    # --- the scale of the loss under fp16 ------------------------------------------------------------------------

    def _create_scaler(self) -> GradScaler:
        """The scaler at the scale of the checkpoint; it does nothing in other precisions than fp16."""
        counters, half = self.state.counters, self.recipe.train.precision == "fp16"
        scaler = GradScaler(self.device.type, FIRST_SCALE, growth_interval=GROW_AFTER, enabled=half)
        if half and counters.step == 0:
            counters.scale = FIRST_SCALE
        scaler.load_state_dict({**scaler.state_dict(), "scale": counters.scale, "_growth_tracker": counters.good_steps})
        return scaler

    def _overflowed(self) -> bool:
        """True if a gradient is not finite and a lower scale may help."""
        may_help = self.scaler.is_enabled() and self.scaler.get_scale() > LEAST_SCALE
        return may_help and not all(bool(values.isfinite().all()) for values in self._gradients())

    def _update_scale(self) -> None:
        """Halve the scale after an overflow, double it after many steps without one, and note it for checkpoints."""
        if not self.scaler.is_enabled():
            return
        self.scaler.update()
        if self.scaler.get_scale() > FIRST_SCALE:
            self.scaler.update(FIRST_SCALE)
        saved = self.scaler.state_dict()
        self.state.counters.scale, self.state.counters.good_steps = saved["scale"], saved["_growth_tracker"]
