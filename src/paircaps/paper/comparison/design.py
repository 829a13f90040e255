"""Design of the comparison: its tasks, its networks, its lengths, and the recipe of every trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paircaps._utils.checks import require_positive
from paircaps.data.files.locate import missing_splits
from paircaps.data.registry import require_metadata, source_metadata
from paircaps.errors import RecipeError
from paircaps.models import pooling_twin
from paircaps.paper.network_size import parameters_of
from paircaps.routing import is_routing, list_routings
from paircaps.training.recipe import Recipe
from paircaps.training.recipe_io import merge, recipe_from_tree
from paircaps.training.recipes import read_tree

NAME = "routings"
"""Name of the comparison on the command line, and of its folder of results."""

POOL = "pool"
"""Name of the network without capsules, where a routing's name stands otherwise; its head has the same name."""

LEARNING_RATES = (1e-3, 3e-3, 1e-2)
"""Highest rates of Adam's one-cycle schedule, of which each routing gets the one that is best on held-out images."""

BATCH = 64
"""Images of a batch."""

DEPTHS = (1, 2, 3, 6)
"""Numbers of capsule layers of which a routing is asked whether it learns through them."""


@dataclass(frozen=True)
class Task:
    """Images to learn and to be tested on.

    Args:
        name: its name, which is that of the images it is tested on.
        title: its name in tables.
        data: section ``data`` of a recipe.
        stand_in: name of the task that is taken where these images are not on this machine; empty if they always are.
        has_poses: whether the poses of its networks are compared with the true ones.
    """

    name: str
    title: str
    data: Mapping[str, Any]
    stand_in: str = ""
    has_poses: bool = False

    @property
    def missing(self) -> str:
        """What is not on this machine, with the command that fetches it; empty if everything is."""
        source = source_metadata(require_metadata(self.data["name"])).name
        return f"{source} is not here (paircaps data get {source})" if missing_splits(source) else ""


@dataclass(frozen=True)
class Head:
    """Network in which routings are compared.

    Args:
        name: short name.
        title: what it is, for tables.
        model: section ``model`` of a recipe, without the routing.
    """

    name: str
    title: str
    model: Mapping[str, Any]


TASKS = {
    task.name: task
    for task in (
        Task(
            "affine-mnist",
            "translated → affine MNIST",
            {"name": "translated-mnist", "test": "affine-mnist", "options": {"fresh": True}},
            "affine-glyphs",
            has_poses=True,
        ),
        Task("fashion-mnist", "Fashion-MNIST", {"name": "fashion-mnist"}, "glyphs"),
        Task(
            "multi-mnist",
            "Multi-MNIST, both digits",
            {"name": "multi-mnist", "options": {"fresh": True}, "test_options": {"fresh": False}},
            "multi-glyphs",
        ),
        Task(
            "affine-glyphs",
            "translated → affine glyphs",
            {"name": "translated-glyphs", "test": "affine-glyphs", "options": {"fresh": True}},
            has_poses=True,
        ),
        Task("glyphs", "glyphs", {"name": "glyphs"}),
        Task(
            "multi-glyphs",
            "two glyphs, both",
            {"name": "multi-glyphs", "options": {"fresh": True}, "test_options": {"fresh": False}},
        ),
    )
}
COMPARED = ("affine-mnist", "fashion-mnist", "multi-mnist")
"""Tasks of the comparison where their images are at hand."""

DEPTH_TASK = "glyphs"
"""Task on which depths are measured; it needs no files."""

_SHARED = {"name": "resnet-caps-grid-small", "options": {"coordinates": "none"}}
HEADS = {
    head.name: head
    for head in (
        Head("own", "the paper's: vote matrices of each position's own", {"name": "resnet-caps-small"}),
        Head("shared", "votes shared by all positions", _SHARED),
        Head(
            "conv", "a convolutional capsule layer below shared votes", merge(_SHARED, {"options": {"conv_kinds": [4]}})
        ),
    )
}
"""Networks of the comparison, all on the same residual network; coordinates would favour some routings (see LOG.md)."""

DEPTH_HEADS = {
    f"depth-{depth}": Head(
        f"depth-{depth}",
        f"{depth} capsule layers",
        {"name": "resnet-caps-small", "options": {"hidden_capsules": [32] * (depth - 1)}},
    )
    for depth in DEPTHS
}


@dataclass(frozen=True)
class Trial:
    """One training of the comparison.

    Args:
        task: name of its task.
        head: name of its head; POOL for the network without capsules.
        routing: name of its routing, or POOL.
        steps: steps of training.
        lr: highest learning rate.
        seed: seed of the weights, the order of the images and their augmentation.
    """

    task: str
    head: str
    routing: str
    steps: int
    lr: float
    seed: int

    @property
    def name(self) -> str:
        """Name that no other trial has, a relative path."""
        return f"{self.task}/{self.head}/{self.routing}/steps-{self.steps}-lr-{self.lr:g}-seed-{self.seed}"

    @cached_property
    def recipe(self) -> Recipe:
        """Complete recipe: that of ``glyphs``, with the settings of the trial, on one thread in full precision."""
        changes = {
            "model": self.model_settings,
            "data": {**TASKS[self.task].data, "validation": 0.05},
            "optimiser": {"lr": self.lr},
            "train": {"epochs": None, "steps": self.steps, "batch_size": BATCH, "seed": self.seed, "precision": "fp32"},
            "evaluate": {"every": 1000},  # weights of the last step count, so nothing is chosen by validation but lr
            "run": {"threads": 1, "checkpoint_every": 100_000},
        }
        return recipe_from_tree(merge(read_tree("glyphs"), changes))

    @property
    def model_settings(self) -> dict[str, Any]:
        """Section ``model`` of the recipe; the pooling network is the twin of the first head's."""
        if self.routing == POOL:
            return {"name": pooling_twin(HEADS["own"].model["name"])}
        head = HEADS.get(self.head) or DEPTH_HEADS[self.head]
        return {**head.model, "routing": self.routing}

    @property
    def parameters(self) -> int:
        """Trainable parameters of the network."""
        return parameters_of(self.recipe)[0]


@dataclass(frozen=True)
class RoutingComparison:
    """What is compared, and for how long.

    Args:
        steps: steps of every training, in the comparison of equal steps. In that of equal time each network gets as
            many as it takes while the pooling network takes these.
        seeds: number of seeds.
        tasks: names of the tasks; empty for all that are at hand.
        routings: names of routings, or POOL; empty for all.
    """

    steps: int = 250
    seeds: int = 3
    tasks: tuple[str, ...] = ()
    routings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse names that there are not."""
        require_positive(steps=self.steps, seeds=self.seeds)
        known = [*list_routings(), POOL]
        for what, wanted, there in (("data", self.tasks, list(TASKS)), ("only", self.routings, known)):
            for name in wanted:
                if name not in there:
                    raise RecipeError(f"--{what}: no {name!r} in this comparison; there is {', '.join(there)}")

    @property
    def wanted_routings(self) -> list[str]:
        """Names of the routings to train, and POOL."""
        return [name for name in (*list_routings(), POOL) if not self.routings or name in self.routings]

    @property
    def wanted_tasks(self) -> list[Task]:
        """Tasks to train: those that were asked for, or all, each with its stand-in where its images are missing."""
        if self.tasks:
            return [TASKS[name] for name in self.tasks]
        compared = [TASKS[name] for name in COMPARED]
        return [TASKS[task.stand_in] if task.missing and task.stand_in else task for task in compared]

    def networks(self) -> list[tuple[str, str]]:
        """Head and routing of every network, those of a head one after the other."""
        names = self.wanted_routings
        pooled = [(POOL, POOL)] if POOL in names else []
        return [*((head, name) for head in HEADS for name in names if is_routing(name)), *pooled]


def describe(comparison: RoutingComparison) -> str:
    """Text of ``paircaps reproduce routings --list``: what is compared, on which images, and in how many trainings.

    Args:
        comparison: what is compared.
    """
    networks, tasks = comparison.networks(), comparison.wanted_tasks
    lines = [f"{NAME}  Every routing in the same networks (not in the paper)"]
    lines.append(f"    routings: {', '.join(comparison.wanted_routings)}")
    lines += [f"    {head.name}: {head.title}" for head in HEADS.values()]
    lines += [f"    {task.title}: {task.missing or 'is here'}" for task in tasks]
    deep = len(DEPTHS) * (len(comparison.wanted_routings) - (POOL in comparison.wanted_routings))
    trainings = len(tasks) * len(networks) * (len(LEARNING_RATES) + 2 * comparison.seeds - 1)
    trainings += deep * len(LEARNING_RATES)
    lines.append(
        f"    {trainings:,} trainings of about {comparison.steps} steps of {BATCH} images; one seed has all rates"
    )
    return "\n".join(lines) + "\n"
