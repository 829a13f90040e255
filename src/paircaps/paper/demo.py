"""The demonstration: three routings and a pooling network of one size, side by side, on glyphs and in minutes.

Each is trained on glyphs that are moved about, and tested on glyphs that are turned, scaled and sheared too, which it
has never seen: a small Table 3 of the paper.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from paircaps._utils.figures import as_png, new_figure
from paircaps._utils.files import write_whole
from paircaps._utils.images import as_float
from paircaps._utils.machine import machine_line
from paircaps.bench.memory import bytes_for_backward
from paircaps.bench.timing import interleaved
from paircaps.bench.train_step import TrainStep, train_step
from paircaps.data import ImageDataset, Loader, load_dataset
from paircaps.losses import Loss, Objective
from paircaps.model_files import load
from paircaps.models import count_parameters
from paircaps.network import Network
from paircaps.training import train
from paircaps.training.evaluation import evaluate
from paircaps.training.recipe import Recipe
from paircaps.training.recipes import load_recipe

CONTENDERS = {
    "FM agreement": {"name": "resnet-caps-small", "routing": "fm"},
    "dynamic routing": {"name": "resnet-caps-small", "routing": "dynamic"},
    "EM routing": {"name": "resnet-caps-small", "routing": "em"},
    "average pooling": {"name": "resnet-pool-small", "routing": "fm"},
}
"""What is compared, and the model section of its recipe."""

COLUMNS = 10
_REPEATS = 5


@dataclass(frozen=True)
class DemoRow:
    """One network.

    Args:
        title: for people.
        translated: accuracy on new glyphs, moved about as in training.
        affine: accuracy on glyphs that are turned, scaled and sheared too.
        parameters: of the network, without its decoder.
        seconds: of a training step.
        kept: bytes that a step keeps for its backward pass.
    """

    title: str
    translated: float
    affine: float
    parameters: int
    seconds: float
    kept: int


def run_demo(
    out: Path,
    *,
    steps: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    fresh: bool = False,
    quiet: bool = False,
) -> tuple[str, list[Path]]:
    """Train all contenders, or go on with them; the table as text, and the files that were written.

    Args:
        out: a folder; each training has one in it.
        steps: of each training; those of the recipe without it.
        limit: images of each split; all of them without it.
        seed: of every training.
        fresh: start over.
        quiet: show no progress.
    """
    recipes, networks, affine = {}, {}, {}
    for title, model in CONTENDERS.items():
        overrides: dict[str, Any] = {"model": model, "train": {"seed": seed}, "data": {"limit": limit}}
        if steps:
            overrides["train"]["steps"] = steps
        recipes[title] = load_recipe("demo", overrides)
        result = train(recipes[title], out / title.replace(" ", "-").lower(), fresh=fresh, quiet=quiet)
        networks[title] = load(result.folder)
        affine[title] = result.trained["test_accuracy"]
    rows = _measure(recipes, networks, affine)
    first = next(iter(recipes.values()))
    table = as_markdown(rows, first, len(load_dataset(first.data.test, "test").limit(limit)))
    write_whole(out / "table.md", table.encode())
    pictures = []
    for name in (first.data.name, first.data.test):
        pictures.append(out / f"{name}.png")
        draw_reconstructions(networks, load_dataset(name, "test"), pictures[-1])
    return table, [out / "table.md", *pictures]


def _measure(
    recipes: Mapping[str, Recipe], networks: Mapping[str, Network], affine: Mapping[str, float]
) -> list[DemoRow]:
    settings = next(iter(recipes.values())).data
    moved = load_dataset(settings.name, "test").limit(settings.limit, settings.seed)
    objectives = {title: Objective(network, Loss(decoder="deconv")) for title, network in networks.items()}
    seen = {title: evaluate(objective, moved).accuracy for title, objective in objectives.items()}
    steps = {title: _step_of_a_copy(recipes[title], objective, moved) for title, objective in objectives.items()}
    kept = {title: bytes_for_backward(step.forward, step.objective) for title, step in steps.items()}
    timings = interleaved(steps, _REPEATS)
    return [
        DemoRow(title, seen[title], affine[title], count_parameters(net.model), timings[title].median, kept[title])
        for title, net in networks.items()
    ]


def _step_of_a_copy(recipe: Recipe, objective: Objective, dataset: ImageDataset) -> TrainStep:
    """A training step to be timed; the trained network itself stays what it is."""
    batch = Loader(dataset, recipe.train.batch_size, seed=0).batch(0, 0)
    return train_step(recipe, copy.deepcopy(objective), batch)


def as_markdown(rows: list[DemoRow], recipe: Recipe, tested: int) -> str:
    """The table, with what it was measured on."""
    lines = [
        "| network | translated glyphs | affine glyphs | parameters | seconds a step | kept for backward |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.title} | {100 * row.translated:.2f} % | {100 * row.affine:.2f} % | {row.parameters:,} | "
            f"{row.seconds:.3f} | {row.kept / 2**20:.0f} MiB |"
        )
    settings = recipe.train
    lines += [
        "",
        f"{settings.steps} steps of {settings.batch_size} translated glyphs, seed {settings.seed}, with a decoder. "
        f"Accuracy on {tested:,} test glyphs each; affine ones are never seen in training. "
        "Parameters without the decoder; "
        f"seconds are medians of {_REPEATS} interleaved repeats. {machine_line()}.",
    ]
    return "\n".join(lines) + "\n"


@torch.no_grad()
def draw_reconstructions(networks: Mapping[str, Network], dataset: ImageDataset, path: Path) -> None:
    """A picture: images on top, and below them what each network redraws from the pose of its most active capsule."""
    first = [int((dataset.labels == label).nonzero()[0]) for label in range(len(dataset.classes))][:COLUMNS]
    images = as_float(dataset.batch(first).images)
    strips = {"input": images, **{title: network.eval().reconstruct(images) for title, network in networks.items()}}
    guesses = {title: network.predict(images).tolist() for title, network in networks.items()}
    figure = new_figure(1 + 0.8 * len(first), 0.4 + 0.95 * len(strips))
    axes = figure.subplots(len(strips), len(first), squeeze=False)
    for row, (title, strip) in zip(axes, strips.items(), strict=True):
        for column, (axis, image) in enumerate(zip(row, strip, strict=True)):
            axis.imshow(image.squeeze(0).numpy(), cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
            if title in guesses:
                _mark(
                    axis,
                    dataset.classes[guesses[title][column]],
                    guesses[title][column] == dataset.labels[first[column]],
                )
        row[0].set_ylabel(title.replace(" ", "\n"), rotation=0, ha="right", va="center", fontsize=9)
    figure.suptitle(
        f"{dataset.info.name}, redrawn from the pose of its most active capsule; red: taken for another digit",
        fontsize=10,
    )
    write_whole(path, as_png(figure))


def _mark(axis: Any, guess: str, right: Any) -> None:
    colour = "black" if bool(right) else "crimson"
    axis.set_xlabel(guess, fontsize=8, color=colour, labelpad=1)
    for spine in axis.spines.values():
        spine.set_color("lightgray" if bool(right) else colour)
