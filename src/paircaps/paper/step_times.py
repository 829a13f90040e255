"""Time of one training step on this machine: measured by a few steps, or estimated from multiplications.

Measured times are kept in a file of the user's cache, so that ``paircaps reproduce --list`` need not measure.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paircaps._utils.files import write_whole
from paircaps._utils.machine import describe_machine
from paircaps.data.files.locate import user_cache
from paircaps.data.loader import Loader
from paircaps.paper.network_size import known_multiplications, noise_images
from paircaps.training.assemble import build_objective, choose_device
from paircaps.training.datasets import Datasets
from paircaps.training.recipe import Recipe, Run
from paircaps.training.resolve import choose_precision

_TIMED_IMAGES = 32
"""Images of a timed step; a whole batch takes longer in proportion."""

_EFFICIENCY = 0.6
"""Multiplications per second of a training step, as a share of those of a convolution alone.

Measured on a thread of an AMD EPYC: 0.34 (dynamic routing in CapsNet) to 0.85 (its pooling twin), 0.61 in the median.
"""

_CONVOLUTION_SECONDS = 0.1
"""Time for which the convolution is repeated that tells the speed of this machine."""


def measure_step(recipe: Recipe) -> float:
    """Seconds of a training step for one image, from steps on a small batch of noise."""
    from paircaps.bench.train_step import train_step  # which the listing does without

    dataset, device = noise_images(recipe, _TIMED_IMAGES), choose_device(recipe.run)
    precision = choose_precision(device) if recipe.train.precision == "auto" else recipe.train.precision
    few = replace(recipe, train=replace(recipe.train, batch_size=_TIMED_IMAGES, precision=precision))
    objective = build_objective(few, Datasets(dataset, None, dataset), device)
    step = train_step(few, objective, Loader(dataset, _TIMED_IMAGES).batch(0, 0))
    step()  # the first one allocates
    return min(_timed(step), _timed(step)) / _TIMED_IMAGES


def _timed(run: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    run()
    return clock() - began


def convolution_rate(device: torch.device) -> float:
    """Multiplications per second of a convolution's forward and backward pass: the best of a few repeats.

    On a CPU the time is that which one thread computes, times the number of threads: however busy the machine is, the
    result is the rate that it reaches when it is not.
    """
    images, channels, side, kernel = 32, 64, 16, 3
    convolution = nn.Conv2d(channels, channels, kernel, padding="same", device=device)
    batch = torch.randn(images, channels, side, side, device=device, requires_grad=True)

    def run() -> None:
        convolution(batch).sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    on_cpu = device.type == "cpu"
    threads, clock = torch.get_num_threads(), time.thread_time if on_cpu else time.perf_counter
    try:
        if on_cpu:
            torch.set_num_threads(1)
        run()  # the first one allocates
        times = [_timed(run, clock)]
        while sum(times) < _CONVOLUTION_SECONDS:
            times.append(_timed(run, clock))
    finally:
        torch.set_num_threads(threads)
    multiplications = 3 * images * (side * channels * kernel) ** 2  # a forward and two backward products
    return (threads if on_cpu else 1) * multiplications / min(times)


@dataclass(frozen=True)
class StepTime:
    """Time of a training step.

    Args:
        seconds: of one image.
        measured: day on which it was measured on this machine, as 2026-01-31; empty for an estimate.
    """

    seconds: float
    measured: str = ""


class StepTimes:
    """Times of a training step of the networks in ``paper.toml``: measured where the cache has one, else estimated."""

    def __init__(self) -> None:
        self._measured = _read_cache().get(machine_key(), {})
        self._found: list[StepTime] = []

    def find(self, recipe: str, variant: str) -> StepTime:
        """The time of a network.

        Args:
            recipe: name of its recipe.
            variant: name of the variant.
        """
        step_time = self._kept(network_name(recipe, variant))
        if step_time is None:
            forward = known_multiplications()[recipe][variant]
            step_time = StepTime(3 * forward / (_EFFICIENCY * self.rate))  # the backward pass has two for each
        self._found.append(step_time)
        return step_time

    def _kept(self, network: str) -> StepTime | None:
        try:
            kept = self._measured[network]
            return StepTime(float(kept["seconds_per_image"]), date.fromisoformat(kept["date"]).isoformat())
        except (KeyError, TypeError, ValueError):  # not measured yet, or a damaged entry
            return None

    @cached_property
    def rate(self) -> float:
        """Multiplications per second on this machine, measured when it is first needed."""
        return convolution_rate(choose_device(Run()))

    @staticmethod
    def _processor() -> str:
        """Processor that the rate is of, in words."""
        device, threads = choose_device(Run()), torch.get_num_threads()
        if device.type != "cpu":
            return f"{device.type} of this machine"
        return f"a thread of this machine, times {threads} threads" if threads > 1 else "a thread of this machine"

    def origins(self) -> list[str]:
        """Sentences on where the times that were found come from, and how good they are."""
        sentences = []
        if any(not step_time.measured for step_time in self._found):
            sentences.append(
                "Estimated: from the number of multiplications of a training step, at "
                f"{_EFFICIENCY * self.rate / 1e9:.3g} billion a second, {_EFFICIENCY:g} of what a convolution reached "
                f"a moment ago on {self._processor()}. Good to a factor of about two on a CPU of few cores that does "
                "nothing else; --hours measures."
            )
        if any(step_time.measured for step_time in self._found):
            sentences.append(
                "Measured: from steps of this network on this machine, timed by --hours or in a training. "
                "Good to a factor of about 1.5 if it is as busy as it was then."
            )
        return sentences


def measured_or_estimated(times: Sequence[StepTime]) -> str:
    """Where the times of several networks come from, in words."""
    days = sorted({step_time.measured for step_time in times if step_time.measured})
    measured = sum(bool(step_time.measured) for step_time in times)
    if not measured:
        return "estimated"
    when = f"measured on {days[0]}" if len(days) == 1 else f"measured from {days[0]} to {days[-1]}"
    return when if measured == len(times) else f"{measured} of them {when}, the others estimated"


def network_name(recipe: str, variant: str) -> str:
    """Name of a network in the cache of step times."""
    return f"{recipe}/{variant}"


def machine_key() -> str:
    """What a measured time depends on beside the network: processor, threads, device, versions."""
    facts = describe_machine()
    names = ("cpu", "cores", "threads", "torch", "paircaps")
    return "; ".join([*(f"{name} {facts[name]}" for name in names), f"device {choose_device(Run()).type}"])


def keep_step_time(network: str, seconds: float) -> None:
    """Write a measured time into the user's cache; where that cannot be written, nothing happens.

    Args:
        network: of :func:`network_name`.
        seconds: time of a training step for one image.
    """
    cache, machine = _read_cache(), machine_key()
    cache[machine] = {
        **cache.get(machine, {}),
        network: {"seconds_per_image": seconds, "date": date.today().isoformat()},
    }
    with suppress(OSError):
        _cache_file().parent.mkdir(parents=True, exist_ok=True)
        write_whole(_cache_file(), json.dumps(cache, indent=2).encode())


def keep_training_speed(network: str, timing: Path) -> None:
    """Write the speed of a finished training into the user's cache.

    Args:
        network: of :func:`network_name`.
        timing: its ``timing.jsonl``; that of a very short training, with less than two speeds, is ignored.
    """
    with suppress(OSError, ValueError, TypeError, AttributeError):
        rows = [json.loads(line) for line in timing.read_text(encoding="utf-8").splitlines()]
        speeds = [row["images_per_second"] for row in rows if row.get("images_per_second")]
        if len(speeds) > 1:  # the first one includes the start
            keep_step_time(network, 1 / statistics.median(speeds))


def _cache_file() -> Path:
    return user_cache() / "step-times.json"


def _read_cache() -> dict[str, dict[str, Any]]:
    """Measured times by machine and network; none if the file is not there or damaged."""
    try:
        cache = json.loads(_cache_file().read_text(encoding="utf-8"))
        return {str(machine): dict(networks) for machine, networks in cache.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
