"""Training speed in PyTorch's two memory formats: channels_last against contiguous.

Training steps of the paper's networks are timed in both formats, one of each in turn.
"""

from __future__ import annotations

from typing import Any

import torch

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.words import Say
from paircaps.bench.timing import interleaved, silent
from paircaps.bench.train_step import TrainStep, train_step
from paircaps.data import Loader
from paircaps.training.assemble import build_objective
from paircaps.training.datasets import load_datasets
from paircaps.training.recipes import load_recipe

CASES = (
    ("resnet-caps-small", 28, 128),
    ("resnet-caps-small", 40, 128),
    ("resnet-caps", 32, 32),
    ("capsnet-light", 28, 64),
)
"""Name of a model, side of its images in pixels, images in a batch."""


def bench_channels_last(repeats: int = 9, say: Say = silent) -> dict[str, Any]:
    """Measure images a second of training steps in both memory formats.

    Args:
        repeats: timed steps of every network in each format.
        say: called with each progress line.
    """
    return {
        "repeats": repeats,
        "rows": [_row(model, size, batch, repeats, say) for model, size, batch in CASES],
        "machine": describe_machine(),
    }


def _row(model: str, size: int, batch: int, repeats: int, say: Say) -> dict[str, Any]:
    """Images a second of one network."""
    say(f"{model} on images of {size}×{size}")
    steps = {
        "contiguous": _step(model, size, batch, channels_last=False),
        "channels_last": _step(model, size, batch, channels_last=True),
    }
    timings = interleaved(steps, repeats, warm_up=2)
    rates = {name: batch / timing.median for name, timing in timings.items()}
    return {"model": model, "image_size": size, "batch": batch, **rates}


def _step(model: str, size: int, batch: int, *, channels_last: bool) -> TrainStep:
    """A training step of a network on synthetic glyphs."""
    overrides = {
        "model": {"name": model},
        "data": {"options": {"image_size": size}, "limit": batch, "validation": 0.0},
        "train": {"batch_size": batch, "channels_last": channels_last},
    }
    recipe = load_recipe("glyphs", overrides)
    datasets = load_datasets(recipe.data)
    objective = build_objective(recipe, datasets, torch.device("cpu"))
    return train_step(recipe, objective, Loader(datasets.train, batch).batch(0, 0))


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as a table."""
    lines = [
        "# Memory formats",
        "",
        f"`paircaps bench channels-last --repeats {result['repeats']}`",
        "",
        f"Images a second of training steps, medians of {result['repeats']} interleaved repeats. "
        f"{machine_line(result['machine'])}.",
        "",
        "| network | image | batch | contiguous | channels_last | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        size, contiguous, channels_last = row["image_size"], row["contiguous"], row["channels_last"]
        lines.append(
            f"| {row['model']} | {size}×{size} | {row['batch']} | {contiguous:,.0f} | {channels_last:,.0f} | "
            f"{channels_last / contiguous:.2f} |"
        )
    return "\n".join(lines) + "\n"
