"""Is channels_last faster, and for which network?

    python benchmarks/layout.py > results/bench/layout.md

Times bare training steps of the paper's networks in both memory formats, one of each in turn, and prints a Markdown
table of images a second.
"""

from __future__ import annotations

import torch

from paircaps._utils.machine import machine_line
from paircaps.bench.timing import interleaved
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
REPEATS = 9


def step_of(model: str, size: int, batch: int, channels_last: bool) -> TrainStep:
    """A training step of a network on glyphs of a size."""
    overrides = {
        "model": {"name": model},
        "data": {"options": {"image_size": size}, "limit": batch, "validation": 0.0},
        "train": {"batch_size": batch, "channels_last": channels_last},
    }
    recipe = load_recipe("glyphs", overrides)
    datasets = load_datasets(recipe.data)
    objective = build_objective(recipe, datasets, torch.device("cpu"))
    return train_step(recipe, objective, Loader(datasets.train, batch).batch(0, 0))


def main() -> None:
    """Print the table."""
    print("# Memory formats\n\n`python benchmarks/layout.py`\n")
    print(f"Images a second of bare training steps, medians of {REPEATS} interleaved repeats. {machine_line()}.\n")
    print("| network | image | batch | plain | channels_last | ratio |\n|---|---|---|---|---|---|")
    for model, size, batch in CASES:
        steps = {str(last): step_of(model, size, batch, last) for last in (False, True)}
        plain, last = (batch / timing.median for timing in interleaved(steps, REPEATS, warm_up=2).values())
        print(f"| {model} | {size}×{size} | {batch} | {plain:,.0f} | {last:,.0f} | {last / plain:.2f} |")


if __name__ == "__main__":
    main()
