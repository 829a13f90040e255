"""State of a training: weights, their average, the optimiser's state, and counters.

Everything else is a pure function of the recipe and the step: the order of the images, augmentation, the learning rate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from paircaps.model_files import contiguous
from paircaps.network import Network

_SEPARATOR = "/"

Tensors = tuple[Tensor, ...] | list[Tensor]


@dataclass
class Sums:
    """Sums over the images of several steps.

    Args:
        images: number of images.
        loss: sum of their losses.
        drawing: part of ``loss`` that is the reconstruction loss, its weight included.
        right: images whose labels are the most active classes.
    """

    images: int = 0
    loss: float = 0.0
    drawing: float = 0.0
    right: int = 0

    def add(self, other: Sums) -> None:
        """Add the sums of other steps."""
        self.images += other.images
        self.loss += other.loss
        self.drawing += other.drawing
        self.right += other.right

    def means(self, prefix: str = "") -> dict[str, float]:
        """Mean loss per image, accuracy and, with a decoder, mean reconstruction loss, each name with a prefix."""
        count = max(1, self.images)
        means = {f"{prefix}loss": self.loss / count, f"{prefix}accuracy": self.right / count}
        return means | ({f"{prefix}drawing": self.drawing / count} if self.drawing else {})


@dataclass
class Counters:
    """The part of the state that is not tensors.

    Args:
        step: number of steps done.
        evaluated: step of the last validation; -1 before the first.
        best_step: step of the best validation; -1 before the first.
        best: accuracy of the best validation, or mean IoU, and to decide between equal ones its negative loss.
        window: sums since the last row ``step`` of the metrics.
        epoch: sums since the last validation.
        scale: factor of the loss under fp16.
        good_steps: steps since the scale changed.
        metrics_bytes: length of ``metrics.jsonl`` in bytes.
        metrics_sha256: SHA-256 of so many bytes of it; empty in checkpoints of earlier versions.
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
    metrics_sha256: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Counters by name, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: object) -> Counters:
        """Counters from what :meth:`as_dict` gave.

        Raises:
            ValueError: if one is missing, of another type or out of its range.
        """
        if isinstance(values, Mapping):
            values = {"metrics_sha256": "", **values}  # of earlier versions, which did not keep it
        known = _table("counters", values, cls)
        counters = cls(**{**known, "window": _sums("window", known), "epoch": _sums("epoch", known)})
        _require_whole("step", counters.step, 0)
        for name in ("evaluated", "best_step"):
            _require_whole(name, getattr(counters, name), -1, counters.step)
        for name in ("good_steps", "metrics_bytes"):
            _require_whole(name, getattr(counters, name), 0)
        if not _is_number(counters.scale) or not 0 < counters.scale < math.inf:
            raise ValueError(f"scale must be a positive number, got {counters.scale!r}")
        if not isinstance(counters.metrics_sha256, str) or not re.fullmatch("([0-9a-f]{64})?", counters.metrics_sha256):
            raise ValueError(
                f"metrics_sha256 must be 64 hexadecimal digits or empty, got {counters.metrics_sha256!r:.100}"
            )
        best: Any = counters.best
        if best is not None:
            if not isinstance(best, list | tuple) or len(best) != 2 or not all(map(_is_number, best)):
                raise ValueError(f"best must be two numbers or null, got {best!r}")
            counters.best = best[0], best[1]
        return counters


def _sums(name: str, values: Mapping[str, Any]) -> Sums:
    """Sums of a checkpoint, checked."""
    sums = Sums(**_table(name, values[name], Sums))
    _require_whole(f"{name}.images", sums.images, 0)
    _require_whole(f"{name}.right", sums.right, 0)
    for key, value in (("loss", sums.loss), ("drawing", sums.drawing)):
        if not _is_number(value):
            raise ValueError(f"{name}.{key} must be a number, got {value!r}")
    return sums


def _table(name: str, values: object, kind: type) -> Mapping[str, Any]:
    """A table that has a value for each field of a dataclass, and no others."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} must be a table, got {values!r:.100}")
    wanted = [part.name for part in fields(kind)]
    for key in wanted:
        if key not in values:
            raise ValueError(f"{name} has no {key!r}")
    for key in values:
        if key not in wanted:
            raise ValueError(f"{name} has {key!r:.100}, which no version of paircaps wrote that this one knows")
    return values


def _require_whole(name: str, value: object, least: int, most: int = (1 << 63) - 1) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r:.100}")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 1 << 63


def create_average(network: Network, decay: float) -> AveragedModel:
    """Exponential moving average of a network's weights and buffers, beginning with its present ones.

    Args:
        network: network to average.
        decay: share of the old average that each update keeps.
    """
    ema = get_ema_multi_avg_fn(decay)

    def update(averages: Tensors, values: Tensors, updates: Tensor | int) -> None:
        if averages[0].is_floating_point():
            ema(averages, values, updates)
        else:  # batch norm's numbers of batches: a mean of them would be no count
            for average, value in zip(averages, values, strict=True):
                average.copy_(value)

    averaged = AveragedModel(network, multi_avg_fn=update, use_buffers=True)
    averaged.n_averaged.fill_(1)  # the first weights count: the first update would replace them otherwise
    return averaged


@dataclass
class State:
    """State of a training.

    Args:
        network: network that is trained.
        optimiser: its optimiser.
        average: moving average of the weights; None without ``train.ema``.
        counters: everything that is not tensors.
    """

    network: Network
    optimiser: torch.optim.Optimizer
    average: AveragedModel | None
    counters: Counters

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, copied to the CPU: ``network/…``, ``average/…`` and ``optimiser/…``."""
        named = {f"network{_SEPARATOR}{name}": value for name, value in self.network.state_dict().items()}
        if self.average is not None:
            named |= {f"average{_SEPARATOR}{name}": value for name, value in self.average.module.state_dict().items()}
        for name, parameter in self.network.named_parameters():
            for key, value in self.optimiser.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    named[_SEPARATOR.join(("optimiser", name, key))] = value
        return contiguous(named)

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], counters: Counters) -> None:
        """Restore a saved state in place: memory formats stay as they are, so that results are exact to the bit.

        Args:
            tensors: what :meth:`tensors` gave.
            counters: counters of the saved state.
        """
        self.network.load_state_dict(_part(tensors, "network"))
        if self.average is not None:
            self.average.module.load_state_dict(_part(tensors, "average"))
        saved = _part(tensors, "optimiser")
        for name, parameter in self.network.named_parameters():
            own = _part(saved, name)
            if own:
                self.optimiser.state[parameter] = {key: _like(parameter, key, value) for key, value in own.items()}
        self.counters = counters

    def evaluated_weights(self) -> Mapping[str, Tensor]:
        """Weights to evaluate and to keep: the average if there is one."""
        return (self.network if self.average is None else self.average.module).state_dict()


def evaluated_part(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights to evaluate and to keep, from the tensors of a checkpoint."""
    return _part(tensors, "average") or _part(tensors, "network")


def _part(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    prefix = f"{name}{_SEPARATOR}"
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _like(parameter: Tensor, key: str, value: Tensor) -> Tensor:
    """A tensor of the optimiser's state, in the memory format that the optimiser itself gives it."""
    if key == "step":  # PyTorch keeps the step on the CPU
        return value.clone()
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)
