"""Everything a training carries from step to step: weights, their average, the optimiser's memory, and counters.

What is not here is a pure function of the recipe and the step: the order of images, augmentation, the learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from paircaps.model_files import contiguous
from paircaps.network import Network

_SEPARATOR = "/"


@dataclass
class Sums:
    """Of the steps since it was emptied, over all images."""

    images: int = 0
    loss: float = 0.0
    drawing: float = 0.0
    right: int = 0

    def add(self, other: Sums) -> None:
        """Count a step in."""
        self.images += other.images
        self.loss += other.loss
        self.drawing += other.drawing
        self.right += other.right

    def means(self, prefix: str = "") -> dict[str, float]:
        """Loss and accuracy an image."""
        count = max(1, self.images)
        means = {f"{prefix}loss": self.loss / count, f"{prefix}accuracy": self.right / count}
        return means | ({f"{prefix}drawing": self.drawing / count} if self.drawing else {})


@dataclass
class Counters:
    """The state that is no tensor.

    Args:
        step: steps done.
        evaluated: the step of the last validation; -1 before the first.
        best_step: the step whose weights did best in validation; -1 before the first.
        best: their accuracy and, to tell equal ones apart, the negative of their loss.
        window: sums since the last row of a log.
        epoch: sums since the last validation.
        scale: what the loss is multiplied by under fp16.
        good_steps: since the scale changed.
        metrics_bytes: length of metrics.jsonl.
    """

    step: int = 0
    evaluated: int = -1
    best_step: int = -1
    best: tuple[float, float] | None = None
    window: Sums = field(default_factory=Sums)
    epoch: Sums = field(default_factory=Sums)
    scale: float = 1.0
    good_steps: int = 0
    metrics_bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Counters:
        """Back from JSON."""
        best = values["best"]
        return cls(
            **{
                **values,
                "best": None if best is None else (best[0], best[1]),
                "window": Sums(**values["window"]),
                "epoch": Sums(**values["epoch"]),
            }
        )


class Average:
    """A running average of a network's weights and statistics.

    Args:
        network: whose.
        decay: share of the old.
    """

    def __init__(self, network: Network, decay: float) -> None:
        self.decay = decay
        self.values = {name: value.detach().clone() for name, value in network.state_dict().items()}

    @torch.no_grad()
    def update(self, network: Network) -> None:
        """Take one more step's weights in; counts are copied."""
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                self.values[name].lerp_(value, 1 - self.decay)
            else:
                self.values[name].copy_(value)


@dataclass
class State:
    """Weights, their average if there is one, the optimiser, and the counters."""

    network: Network
    optimiser: torch.optim.Optimizer
    average: Average | None
    counters: Counters

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, copied to the CPU."""
        named = {f"network{_SEPARATOR}{name}": value for name, value in self.network.state_dict().items()}
        if self.average is not None:
            named |= {f"average{_SEPARATOR}{name}": value for name, value in self.average.values.items()}
        for name, parameter in self.network.named_parameters():
            for key, value in self.optimiser.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    named[_SEPARATOR.join(("optimiser", name, key))] = value
        return contiguous(named)

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], counters: Counters) -> None:
        """Go back to a saved state; memory formats stay as they are, so that results are the same to the bit."""
        self.network.load_state_dict(_part(tensors, "network"))
        if self.average is not None:
            for name, value in _part(tensors, "average").items():
                self.average.values[name].copy_(value)
        memory = _part(tensors, "optimiser")
        for name, parameter in self.network.named_parameters():
            own = _part(memory, name)
            if own:
                self.optimiser.state[parameter] = {key: _like(parameter, key, value) for key, value in own.items()}
        self.counters = counters

    def evaluated_weights(self) -> Mapping[str, Tensor]:
        """The weights that count: the average if there is one."""
        return self.network.state_dict() if self.average is None else self.average.values


def evaluated_part(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that count, out of a checkpoint's tensors."""
    return _part(tensors, "average") or _part(tensors, "network")


def _part(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    prefix = f"{name}{_SEPARATOR}"
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _like(parameter: Tensor, key: str, value: Tensor) -> Tensor:
    """A tensor of the optimiser's memory, laid out as the optimiser lays it out itself."""
    if key == "step":  # PyTorch keeps it on the CPU
        return value.clone()
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)
