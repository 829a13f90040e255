"""Where the time of a training step goes: the operators of PyTorch that take the most, recipe by recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.words import Say
from paircaps.bench.profile import as_markdown as operators_as_markdown
from paircaps.bench.profile import profile_operators
from paircaps.bench.timing import silent
from paircaps.bench.train import LoopStep, in_chosen_precision, open_training, stand_in_datasets
from paircaps.training.recipe import Recipe

LARGEST = 12
"""Operators with a row of their own."""

REPEATS = 3
"""Steps over which times are averaged."""


def bench_train_profile(recipes: Mapping[str, Recipe], say: Say = silent) -> dict[str, Any]:
    """Profile a step of the training loop of recipes, in the precision that ``auto`` chooses on this machine.

    Args:
        recipes: recipes by name.
        say: called with each progress line.
    """
    return {
        "recipes": list(recipes),
        "repeats": REPEATS,
        "profiles": [_profile(name, recipe, say) for name, recipe in recipes.items()],
        "machine": describe_machine(),
    }


def _profile(name: str, recipe: Recipe, say: Say) -> dict[str, Any]:
    """Profile one recipe."""
    say(f"where the time of {name} goes")
    datasets, source = stand_in_datasets(recipe.data)
    chosen = in_chosen_precision(recipe)
    with open_training(chosen, datasets) as training:
        operators = profile_operators(LoopStep(training), REPEATS, LARGEST)
    return {
        "recipe": name,
        "data": source,
        "batch_size": chosen.train.decided_batch_size,
        "precision": chosen.train.precision,
        "operators": operators,
    }


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as one table for every recipe."""
    lines = [
        "# Where the time of a training step goes",
        "",
        f"`paircaps bench train {' '.join(result['recipes'])} --profile`",
        "",
        f"Operators of a step of the whole loop by the time that they take themselves, means of {result['repeats']} "
        f"steps under PyTorch's profiler, which slows small operators. {machine_line(result['machine'])}.",
    ]
    for profile in result["profiles"]:
        facts = f"{profile['batch_size']} images a step, {profile['precision']}, {profile['data']}"
        lines += ["", f"## {profile['recipe']}", "", f"{facts}.", "", *operators_as_markdown(profile["operators"])]
    return "\n".join(lines) + "\n"
