"""What an experiment is made of here: which data there is for it, and the trainings on it, each in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from paircaps.data.here import missing_splits, source_of
from paircaps.data.metadata import METADATA
from paircaps.models.pooling import pooling_twin
from paircaps.paper.experiments import Experiment, Study, Variant
from paircaps.paper.step_times import StepTimes, measured_or_estimated, network_name
from paircaps.paper.time_estimate import training_time
from paircaps.paper.training_length import Budget, epochs_of, shortened
from paircaps.training.recipe import Recipe
from paircaps.training.recipe_io import RecipeTree, merge, recipe_from_tree
from paircaps.training.recipes import read_tree
from paircaps.training.run_folder import RunFolder

RUNS = "runs"
"""The folder of trainings, beside the report."""

SEED = "seed-"
"""How the folder of a training begins, before its seed."""


@dataclass(frozen=True)
class Choice:
    """What the user asked for.

    Args:
        budget: length of every training.
        seeds: how many; the paper's number without it.
        limit: images of each split; all of them without it.
        short: take the settings for short trainings.
        data: names of datasets to leave all others out; empty for all of them.
        variants: names of networks to leave all others out; empty for all of them.
        changes: other settings for every training, as sections of keys.
        lengths: of the trainings of single studies, by experiment and data, in place of the budget.
    """

    budget: Budget = field(default_factory=Budget)
    seeds: int | None = None
    limit: int | None = None
    short: bool = False
    data: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    lengths: Mapping[tuple[str, str], Budget] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyData:
    """The data of a study.

    Args:
        study: that it is for.
        data: name of the dataset that is tested on, and of its folder.
        changes: what it changes of the recipe.
        is_stand_in: whether it is other data than the paper's.
        missing: why it cannot be had, with what to do; empty if it is here.
    """

    study: Study
    data: str
    changes: Mapping[str, Any]
    is_stand_in: bool
    missing: str = ""


@dataclass(frozen=True)
class PlannedRun:
    """One training.

    Args:
        experiment: that it belongs to.
        source: its data.
        variant: its network.
        seed: of it.
        recipe: with everything in it.
        folder: where it is.
        is_changed: whether ``--set`` changed a setting of it.
    """

    experiment: Experiment
    source: StudyData
    variant: Variant
    seed: int
    recipe: Recipe
    folder: Path
    is_changed: bool = False

    @property
    def step_time_name(self) -> str | None:
        """Name under which the time of a training step is kept; None if it is not that of the shipped recipe."""
        return None if self.is_changed else network_name(self.source.study.recipe, self.variant.name)


def source_here(study: Study) -> StudyData:
    """The paper's data if it is here, else the best stand-in that is."""
    sources = all_sources(study)
    return next((source for source in sources if not source.missing), sources[0])


def all_sources(study: Study) -> list[StudyData]:
    """The paper's data and its stand-ins, the best one first."""
    changes = [(study.data, {}), *((stand_in.data, stand_in.set) for stand_in in study.stand_ins)]
    return [
        StudyData(study, data, change, place > 0, _missing(merge(read_tree(study.recipe), change)["data"]))
        for place, (data, change) in enumerate(changes)
    ]


def _missing(settings: Mapping[str, Any]) -> str:
    """What is not here of the data of a recipe, and how to get it."""
    wanted = {source_of(METADATA[name]).name for name in (settings["name"], settings.get("test", "")) if name}
    reasons = []
    for name in sorted(wanted):
        if missing_splits(name):
            reasons.append(f"{name} is not here (paircaps data get {name})")
    return "; ".join(reasons)


def paper_recipe(study: Study) -> Recipe:
    """The recipe of a study with the paper's length."""
    return _recipe_named(study.recipe)


@cache
def _recipe_named(name: str) -> Recipe:
    return recipe_from_tree(read_tree(name))


def run_recipe(experiment: Experiment, source: StudyData, variant: Variant, seed: int, choice: Choice) -> Recipe:
    """The recipe of one training."""
    tree = merge(read_tree(source.study.recipe), source.changes)
    if choice.short:
        tree = merge(merge(tree, experiment.short), source.study.short or {})
    tree = merge(tree, _network(tree, variant))
    tree = merge(tree, {"train": {"seed": seed}, "data": {"limit": choice.limit}})
    tree = merge(tree, choice.changes)
    return shortened(recipe_from_tree(tree), choice.lengths.get((experiment.name, source.data), choice.budget))


def _network(tree: RecipeTree, variant: Variant) -> Mapping[str, Any]:
    return {"model": {"name": pooling_twin(tree["model"]["name"])}} if variant.pooled else variant.set


def wanted_sources(experiment: Experiment, choice: Choice) -> list[StudyData]:
    """The data of an experiment that was asked for, here or not; a stand-in that is named is taken."""
    wanted = []
    for study in experiment.studies:
        named = [source for source in all_sources(study) if source.data in choice.data]
        if not choice.data or study.data in choice.data:
            wanted.append(source_here(study))
        elif named:
            wanted.append(named[0])
    return wanted


def wanted_variants(experiment: Experiment, choice: Choice) -> list[Variant]:
    """The networks of an experiment that were asked for."""
    return [variant for variant in experiment.variants if not choice.variants or variant.name in choice.variants]


def plan_runs(experiments: Sequence[Experiment], choice: Choice, out: Path) -> list[PlannedRun]:
    """All trainings whose data is here; all networks of a first seed come before any of a second one."""
    most = max((choice.seeds or experiment.seeds for experiment in experiments), default=0)
    runs = []
    for seed in range(most):
        for experiment in experiments:
            if seed >= (choice.seeds or experiment.seeds) or experiment.kind == "times":
                continue
            for source in wanted_sources(experiment, choice):
                if not source.missing:
                    runs += [
                        _run(experiment, source, variant, seed, choice, out)
                        for variant in wanted_variants(experiment, choice)
                    ]
    return runs


def _run(
    experiment: Experiment, source: StudyData, variant: Variant, seed: int, choice: Choice, out: Path
) -> PlannedRun:
    recipe = run_recipe(experiment, source, variant, seed, choice)
    folder = run_folder(out, experiment, source.data, variant, seed).path
    return PlannedRun(experiment, source, variant, seed, recipe, folder, bool(choice.changes))


def study_folder(out: Path, experiment: Experiment, data: str) -> Path:
    """Where everything of one dataset of an experiment is."""
    return out / RUNS / experiment.name / data


def run_folder(out: Path, experiment: Experiment, data: str, variant: Variant, seed: int) -> RunFolder:
    """Where a training is."""
    return RunFolder(study_folder(out, experiment, data) / variant.name / f"{SEED}{seed}")


def describe_experiments(experiments: Sequence[Experiment]) -> str:
    """A paragraph an experiment for ``paircaps reproduce --list``: data, budget, and time on this machine."""
    step_times = StepTimes()
    lines = []
    for experiment in experiments:
        where = f"not in the paper; after {experiment.after}" if experiment.after else f"section {experiment.section}"
        lines += [f"{experiment.name}  {experiment.caption} ({where})"]
        lines += [f"    networks: {', '.join(variant.name for variant in experiment.variants)}"]
        for study in experiment.studies:
            if experiment.kind == "times":
                lines.append(f"    {study.data}: needs no images; a forward pass of each network is timed, in a minute")
                continue
            source = source_here(study)
            lines.append(f"    {study.data}: {_data(source)}; {_length(experiment, source, step_times)}")
        lines.append("")
    return "\n".join([*lines, *step_times.origins()]) + "\n"


def _data(source: StudyData) -> str:
    if source.missing:
        return source.missing
    return f"{source.data}, which is here, stands in for it" if source.is_stand_in else "is here"


def _length(experiment: Experiment, source: StudyData, step_times: StepTimes) -> str:
    """The paper's budget of a study, and how long all its networks would take here."""
    paper = paper_recipe(source.study)
    budget = f"{paper.train.steps:,} steps" if paper.train.steps else f"{epochs_of(paper):g} epochs"
    seeds = "one seed" if experiment.seeds == 1 else f"{experiment.seeds} seeds"
    # networks of a study differ in nothing that the number of steps depends on, so that one recipe serves them all
    recipe = run_recipe(experiment, source, experiment.variants[0], 0, Choice()) if source.is_stand_in else paper
    times = [step_times.find(source.study.recipe, variant.name) for variant in experiment.variants]
    hours = experiment.seeds * sum(training_time(recipe, step.seconds).seconds for step in times) / 3600
    here = f"about {hours:,.0f} hours" if hours >= 1.5 else f"about {max(1, round(60 * hours))} minutes"
    return (
        f"{experiment.whose} budget: {budget}, {seeds}; "
        f"all {len(times)} networks here: {here}, {measured_or_estimated(times)}"
    )
