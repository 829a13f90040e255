"""Runs put together: by the dataset they are tested on, and then those that differ in their seed alone."""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from paircaps._utils.summary import Summary, summarise
from paircaps.errors import PaircapsError
from paircaps.models import is_pooling_twin
from paircaps.training.compare.runs import ComparedRun, read_run
from paircaps.training.recipe import Recipe
from paircaps.training.recipe_io import KEYS, changed_values
from paircaps.training.run_folder import find_runs

Item = TypeVar("Item")

_LONGEST_LABEL = 48
"""Most characters of what differs, or of a network, that a group is called by in a figure."""


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ in their seed alone, and in section ``run`` of their recipes, which changes no result.

    Args:
        runs: all of them, in the order of their seeds.
    """

    runs: tuple[ComparedRun, ...]

    @property
    def name(self) -> str:
        """Names of the finished runs, or of all if none is, with what they share written once, ``fm/seed-{0,1,2}``."""
        return joined_names([run.name for run in self.finished or self.runs])

    @property
    def recipe(self) -> Recipe:
        """Recipe of the first run."""
        return self.runs[0].recipe

    @property
    def finished(self) -> tuple[ComparedRun, ...]:
        """Those that are finished."""
        return tuple(run for run in self.runs if run.is_finished)

    @property
    def unfinished(self) -> tuple[ComparedRun, ...]:
        """Those that are not finished."""
        return tuple(run for run in self.runs if not run.is_finished)

    @property
    def network(self) -> str:
        """Model, routing and options, in words."""
        return network_in_words(self.recipe)

    @property
    def parameters(self) -> int | None:
        """Number of trained weights of the model, without its decoder; None if no run is finished."""
        return next((run.parameters for run in self.finished), None)

    def summary(self, value: Callable[[ComparedRun], float | None]) -> Summary | None:
        """Mean and deviation of a number over the finished runs; None if one of them does not have it.

        Args:
            value: function from a run to the number.
        """
        values = [number for run in self.finished if (number := value(run)) is not None]
        return summarise(values) if values and len(values) == len(self.finished) else None


@dataclass(frozen=True)
class Comparison:
    """Runs that are tested on one dataset.

    Args:
        data: name of the dataset, with the note on its files.
        groups: the runs, together where they differ in their seed alone.
        differences: for each key in which recipes differ, other than the seed, its value in each group as text.
        labels: what each group is called in a figure: by what differs.
    """

    data: str
    groups: tuple[SeedGroup, ...]
    differences: dict[str, list[str]]
    labels: tuple[str, ...]

    @property
    def finished(self) -> tuple[SeedGroup, ...]:
        """Groups with a finished run."""
        return tuple(group for group in self.groups if group.finished)

    @property
    def unfinished(self) -> tuple[ComparedRun, ...]:
        """All runs that are not finished."""
        return tuple(run for group in self.groups for run in group.unfinished)

    @property
    def loss_names(self) -> list[str]:
        """Kinds of loss among the runs; values of different kinds cannot be compared."""
        return sorted({run.loss_name for group in self.groups for run in group.runs if run.loss_name})

    def notes(self) -> list[str]:
        """Sentences on what a reader could be misled by."""
        notes = []
        for group in self.groups:
            seeds = Counter(run.seed for run in group.finished)
            for seed, count in seeds.items():
                if count > 1:
                    names = ", ".join(run.name for run in group.finished if run.seed == seed)
                    notes.append(
                        f"{names}: the same seed, {seed}, so their deviation is not one over seeds "
                        "(another commit, another number of threads, or a copy)"
                    )
        if len(self.loss_names) > 1:
            notes.append(f"{self.data}: losses of different kinds ({', '.join(self.loss_names)}) cannot be compared")
        return notes


def compare_runs(places: Iterable[Path], unreadable: list[PaircapsError] | None = None) -> list[Comparison]:
    """Read runs and compare those that are tested on the same dataset.

    Args:
        places: folders of runs, or folders that contain some.
        unreadable: list that gets the error of every run that cannot be read; None raises the first one.

    Returns:
        A comparison for each dataset; datasets and groups are in the order in which their first run was given.

    Raises:
        PaircapsError: if a place has no run, or a file of a run is damaged and ``unreadable`` is None.
    """
    datasets: list[list[ComparedRun]] = []
    for name, folder in find_runs(places).items():
        try:
            run = read_run(name, folder)
        except PaircapsError as error:
            if unreadable is None:
                raise
            unreadable.append(error)
            continue
        same = next((runs for runs in datasets if all(_is_same_data(run, other) for other in runs)), None)
        if same is None:
            datasets.append([run])
        else:
            same.append(run)
    return [_comparison(runs) for runs in datasets]


def _is_same_data(one: ComparedRun, other: ComparedRun) -> bool:
    """Whether two runs are tested on the same dataset, as far as is known: an unfinished run has no note yet."""
    return one.data == other.data and (one.note == other.note or None in (one.note, other.note))


def _comparison(runs: Sequence[ComparedRun]) -> Comparison:
    together = group_by_recipe(runs, lambda run: run.recipe)
    groups = tuple(SeedGroup(tuple(sorted(group, key=lambda run: run.seed))) for group in together)
    differences = recipe_differences([group.recipe for group in groups])
    note = next((run.note for run in runs if run.note), "")
    data = f"{runs[0].data} ({note})" if note else runs[0].data
    return Comparison(data, groups, differences, tuple(_labels(groups, differences)))


# --- recipes ---------------------------------------------------------------------------------------------------------


def group_by_recipe(items: Iterable[Item], recipe_of: Callable[[Item], Recipe]) -> list[list[Item]]:
    """Put those together whose recipes differ in the seed alone; groups are in the order of their first item.

    Args:
        items: runs, or what belongs to them.
        recipe_of: function from an item to its recipe.
    """
    groups: list[list[Item]] = []
    for item in items:
        for group in groups:
            if not _changed(recipe_of(group[0]), recipe_of(item)):
                group.append(item)
                break
        else:
            groups.append([item])
    return groups


def recipe_differences(recipes: Sequence[Recipe]) -> dict[str, list[str]]:
    """Keys in which recipes differ, other than the seed, each with its value in every recipe as text.

    Args:
        recipes: one or more recipes.
    """
    first = recipes[0]
    changes = [_changed(first, recipe) for recipe in recipes]
    before = {key: old for change in changes for key, (old, _) in change.items()}
    return {
        key: [_plain(change[key][1] if key in change else before[key]) for change in changes]
        for key in KEYS
        if key in before
    }


def _plain(value: str) -> str:
    """A value as a reader expects it: text without the quotes that TOML wants."""
    return value[1:-1] if re.fullmatch(r'"[^"\\]*"', value) and value != '""' else value


def _changed(one: Recipe, other: Recipe) -> dict[str, tuple[str, str]]:
    """Keys in which two recipes differ, other than the seed."""
    return changed_values(one, replace(other, train=replace(other.train, seed=one.train.seed)))


def network_in_words(recipe: Recipe) -> str:
    """Model, routing and options of a recipe; a pooling network has no routing."""
    model = recipe.model
    routing = [] if is_pooling_twin(model.name) else [model.routing]
    options = [f"{key} {value}" for key, value in (model.options | model.routing_options).items()]
    return ", ".join([model.name, *routing, *options])


# --- names -----------------------------------------------------------------------------------------------------------


def joined_names(names: Sequence[str]) -> str:
    """Several names as one, with the beginning and end that they share written once: ``fm/seed-{0,1,2}``."""
    if len(names) == 1:
        return names[0]
    start = os.path.commonprefix(list(names))  # noqa: RUF071 (characters, not folders, are meant)
    rests = [name[len(start) :] for name in names]
    end = os.path.commonprefix([rest[::-1] for rest in rests])[::-1]  # noqa: RUF071
    middles = [rest[: len(rest) - len(end)] for rest in rests]
    return f"{start}{{{','.join(middles)}}}{end}"


def _labels(groups: Sequence[SeedGroup], differences: dict[str, list[str]]) -> list[str]:
    """What groups are called in a figure: by few differences, or else by their networks, or else by their names."""
    by_differences = [
        ", ".join(
            _setting_in_words(key, values[number])
            for key, values in differences.items()
            if not (key == "model.routing" and is_pooling_twin(group.recipe.model.name))
        )
        for number, group in enumerate(groups)
    ]
    networks = [group.network for group in groups]
    if differences and max(map(len, by_differences)) <= _LONGEST_LABEL:
        return by_differences
    if len(set(networks)) == len(groups) and max(map(len, networks)) <= _LONGEST_LABEL:
        return networks
    return [group.name for group in groups]


def _setting_in_words(key: str, value: str) -> str:
    """A key and its value, as short as can be understood: ``fm``, ``lr 0.01``, ``schedule cosine``."""
    if key in ("model.name", "model.routing"):
        return value
    section, name = key.split(".")
    return f"{section if name == 'name' else name} {value}"
