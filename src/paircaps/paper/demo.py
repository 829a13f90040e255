"""``paircaps demo``: four capsule networks and a pooling network of one size, trained and compared in minutes.

Each is trained on translated glyphs, and tested on glyphs that are also rotated, scaled and sheared, which it has never
seen: a small version of the paper's Table 3.
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

COMPARED_MODELS = {
    "FM on the grid": {"name": "resnet-caps-grid-small", "routing": "fm"},
    "FM agreement": {"name": "resnet-caps-small", "routing": "fm"},
    "dynamic routing": {"name": "resnet-caps-small", "routing": "dynamic"},
    "EM routing": {"name": "resnet-caps-small", "routing": "em"},
    "average pooling": {"name": "resnet-pool-small", "routing": "fm"},
}
"""Section ``model`` of the recipe of each network that is compared, by its title."""

COLUMNS = 10
"""Most images in a picture of reconstructions."""

_REPEATS = 5
"""Number of times that a training step is timed."""


@dataclass(frozen=True)
class DemoRow:
    """Row of the demonstration's table: one network.

    Args:
        title: name of the network in the table.
        translated: accuracy in 0..1 on new glyphs, translated as in training.
        affine: accuracy in 0..1 on glyphs that are rotated, scaled and sheared too.
        parameters: number of trainable parameters, without the decoder.
        seconds: time of a training step.
        kept_bytes: memory that a training step keeps for its backward pass.
    """

    title: str
    translated: float
    affine: float
    parameters: int
    seconds: float
    kept_bytes: int


def run_demo(
    out: Path,
    *,
    steps: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    fresh: bool = False,
    quiet: bool = False,
) -> tuple[str, list[Path]]:
    """Train all networks, or continue their trainings, and compare them.

    Args:
        out: folder of all results, with a folder for each training in it.
        steps: steps of each training; None for those of the recipe.
        limit: most images of each split; None for all of them.
        seed: seed of every training.
        fresh: start over.
        quiet: show no progress.

    Returns:
        The table as Markdown, and the files that were written.
    """
    # Train.
    recipes, networks, affine = {}, {}, {}
    for title, model in COMPARED_MODELS.items():
        overrides: dict[str, Any] = {"model": model, "train": {"seed": seed}, "data": {"limit": limit}}
        if steps:
            overrides["train"]["steps"] = steps
        recipes[title] = load_recipe("demo", overrides)
        result = train(recipes[title], out / title.replace(" ", "-").lower(), fresh=fresh, quiet=quiet)
        networks[title] = load(result.folder)
        affine[title] = result.trained["test_accuracy"]
    # Evaluate, measure and write.
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
    """Evaluate the networks on translated glyphs, and measure time and memory of their training steps."""
    settings = next(iter(recipes.values())).data
    translated = load_dataset(settings.name, "test").limit(settings.limit, settings.seed)
    objectives = {title: Objective(network, Loss(decoder="deconv")) for title, network in networks.items()}
    accuracies = {title: evaluate(objective, translated).accuracy for title, objective in objectives.items()}
    steps = {title: _step_of_a_copy(recipes[title], objective, translated) for title, objective in objectives.items()}
    kept_bytes = {title: bytes_for_backward(step.forward, step.objective) for title, step in steps.items()}
    timings = interleaved(steps, _REPEATS)
    return [
        DemoRow(
            title,
            accuracies[title],
            affine[title],
            count_parameters(network.model),
            timings[title].median,
            kept_bytes[title],
        )
        for title, network in networks.items()
    ]


def _step_of_a_copy(recipe: Recipe, objective: Objective, dataset: ImageDataset) -> TrainStep:
    """Training step to be timed, of a copy: the trained network does not change."""
    batch = Loader(dataset, recipe.train.decided_batch_size, seed=0).batch(0, 0)
    return train_step(recipe, copy.deepcopy(objective), batch)


def as_markdown(rows: list[DemoRow], recipe: Recipe, tested: int) -> str:
    """The table as Markdown, with a sentence on how it was measured.

    Args:
        rows: one for each network.
        recipe: recipe of one of the trainings.
        tested: number of test images of each kind.
    """
    lines = [
        "| network | translated glyphs | affine glyphs | parameters | seconds a step | kept for backward |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.title} | {100 * row.translated:.2f} % | {100 * row.affine:.2f} % | {row.parameters:,} | "
            f"{row.seconds:.3f} | {row.kept_bytes / 2**20:.0f} MiB |"
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
    """Draw images, and below them the reconstructions by each network from the pose of its most active capsule.

    Args:
        networks: trained networks by title.
        dataset: dataset whose first image of each class is drawn.
        path: PNG file to write.
    """
    first = [int((dataset.labels == label).nonzero()[0]) for label in range(len(dataset.classes))][:COLUMNS]
    images = as_float(dataset.batch(first).images)
    strips = {"input": images, **{title: network.eval().reconstruct(images) for title, network in networks.items()}}
    predictions = {title: network.classify(images).tolist() for title, network in networks.items()}
    figure = new_figure(1 + 0.8 * len(first), 0.4 + 0.95 * len(strips))
    axes = figure.subplots(len(strips), len(first), squeeze=False)
    for row, (title, strip) in zip(axes, strips.items(), strict=True):
        for column, (axis, image) in enumerate(zip(row, strip, strict=True)):
            axis.imshow(image.squeeze(0).numpy(), cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
            if title in predictions:
                _label_prediction(
                    axis,
                    dataset.classes[predictions[title][column]],
                    predictions[title][column] == dataset.labels[first[column]],
                )
        row[0].set_ylabel(title.replace(" ", "\n"), rotation=0, ha="right", va="center", fontsize=9)
    figure.suptitle(
        f"{dataset.info.name}, redrawn from the pose of its most active capsule; red: taken for another digit",
        fontsize=10,
    )
    write_whole(path, as_png(figure))


def _label_prediction(axis: Any, prediction: str, is_right: Any) -> None:
    """Write the predicted class below a reconstruction, in red if it is wrong."""
    colour = "black" if bool(is_right) else "crimson"
    axis.set_xlabel(prediction, fontsize=8, color=colour, labelpad=1)
    for spine in axis.spines.values():
        spine.set_color("lightgray" if bool(is_right) else colour)
