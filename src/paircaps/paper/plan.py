"""Plan of an experiment: the data that is on this machine, and the trainings on it, each with its recipe and folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from paircaps.data.files.locate import missing_splits
from paircaps.data.registry import require_metadata, source_metadata
from paircaps.models import pooling_twin
from paircaps.paper.experiments import Experiment, Study, Variant
from paircaps.paper.step_times import StepTimes, measured_or_estimated, network_name
from paircaps.paper.time_estimate import training_time
from paircaps.paper.training_length import Budget, epochs_of, shortened
from paircaps.training.recipe import Data, Evaluate, Recipe, Train
from paircaps.training.recipe_io import RecipeTree, merge, recipe_from_tree
from paircaps.training.recipes import read_tree
from paircaps.training.run_folder import RunFolder

RUNS = "runs"
"""Name of the folder with all trainings, beside the report."""

SEED_PREFIX = "seed-"
"""Beginning of the name of a training's folder, before its seed."""


@dataclass(frozen=True)
class Choice:
    """What the user asked for: the options of ``paircaps reproduce``.

    Args:
        budget: length of every training.
        seeds: number of seeds; None for the paper's number.
        limit: most images of each split; None for all of them.
        short: whether to take the settings for short trainings.
        data: names of the datasets to use; empty for all of them.
        variants: names of the networks to train; empty for all of them.
        changes: settings that ``--set`` changes in every training, as sections of keys.
        lengths: lengths by experiment and dataset, which replace the budget there.
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
    """Dataset that a study can use: the paper's or a stand-in.

    Args:
        study: study that it is for.
        dataset: name of the dataset that is tested on, and of its folder of results.
        changes: settings that it changes in the recipe, as sections of keys.
        is_stand_in: whether it is another dataset than the paper's.
        missing: what is not on this machine, and the command that fetches it; empty if everything is.
    """

    study: Study
    dataset: str
    changes: Mapping[str, Any]
    is_stand_in: bool
    missing: str = ""


@dataclass(frozen=True)
class PlannedRun:
    """One training of an experiment.

    Args:
        experiment: experiment that it belongs to.
        study_data: dataset that it uses.
        variant: network that it trains.
        seed: seed of the weights, the data order and the augmentation.
        recipe: its complete recipe.
        folder: where its files are.
        is_changed: whether it differs from the shipped recipe in a setting of ``--set``, or in an own routing.
    """

    experiment: Experiment
    study_data: StudyData
    variant: Variant
    seed: int
    recipe: Recipe
    folder: Path
    is_changed: bool = False

    @property
    def step_time_name(self) -> str | None:
        """Name under which the time of a training step is kept; None if it is not that of the shipped recipe."""
        return None if self.is_changed else network_name(self.study_data.study.recipe, self.variant.name)


def available_data(study: Study) -> StudyData:
    """The paper's dataset if it is on this machine, else the best stand-in that is; if none is, the paper's."""
    candidates = candidate_data(study)
    return next((study_data for study_data in candidates if not study_data.missing), candidates[0])


def candidate_data(study: Study) -> list[StudyData]:
    """The paper's dataset and its stand-ins, the best one first."""
    candidates = [(study.data, {}), *((stand_in.data, stand_in.changes) for stand_in in study.stand_ins)]
    recipe = read_tree(study.recipe)
    return [
        StudyData(study, dataset, changes, place > 0, _missing(merge(recipe, changes)["data"]))
        for place, (dataset, changes) in enumerate(candidates)
    ]


def _missing(settings: Mapping[str, Any]) -> str:
    """Datasets of a recipe that are not on this machine, each with the command that fetches it; empty if none."""
    names = [name for name in (settings["name"], settings.get("test", "")) if name]
    wanted = {source_metadata(require_metadata(name)).name for name in names}
    reasons = []
    for name in sorted(wanted):
        if missing_splits(name):
            reasons.append(f"{name} is not here (paircaps data get {name})")
    return "; ".join(reasons)


def paper_recipe(study: Study) -> Recipe:
    """Recipe of a study with the paper's data and length."""
    return _recipe_named(study.recipe)


def full_recipe(study: Study, variant: Variant) -> Recipe:
    """Recipe that a training is compared with: the paper's; for a system published by others its own, on the same data.

    Args:
        study: part of an experiment.
        variant: one of its networks.
    """
    if not variant.is_rival:
        return paper_recipe(study)
    return replace(_recipe_named(variant.recipes[study.data]), data=paper_recipe(study).data)


@cache
def _recipe_named(name: str) -> Recipe:
    return recipe_from_tree(read_tree(name))


def run_recipe(experiment: Experiment, study_data: StudyData, variant: Variant, seed: int, choice: Choice) -> Recipe:
    """Recipe of one training.

    Args:
        experiment: experiment that it belongs to.
        study_data: dataset that it uses.
        variant: network that it trains.
        seed: seed of the training.
        choice: what the user asked for.
    """
    tree = merge(read_tree(study_data.study.recipe), study_data.changes)
    if variant.is_rival:  # everything is its own but the data, and nothing is known of a shorter training
        tree = read_tree(variant.recipes[study_data.study.data]) | {"data": tree["data"]}
    elif choice.short:
        tree = merge(merge(tree, experiment.short), study_data.study.short or {})
    tree = merge(tree, _network_settings(tree, variant))
    tree = merge(tree, {"train": {"seed": seed}, "data": {"limit": choice.limit}})
    tree = merge(tree, choice.changes)
    return shortened(recipe_from_tree(tree), choice.lengths.get((experiment.name, study_data.dataset), choice.budget))


def _network_settings(tree: RecipeTree, variant: Variant) -> Mapping[str, Any]:
    """Settings that make a recipe one of this variant."""
    return {"model": {"name": pooling_twin(tree["model"]["name"])}} if variant.pooled else variant.changes


def wanted_data(experiment: Experiment, choice: Choice) -> list[StudyData]:
    """Datasets of an experiment that were asked for, on this machine or not; a stand-in that was named is taken."""
    wanted = []
    for study in experiment.studies:
        named = [study_data for study_data in candidate_data(study) if study_data.dataset in choice.data]
        if not choice.data or study.data in choice.data:
            wanted.append(available_data(study))
        elif named:
            wanted.append(named[0])
    return wanted


def wanted_variants(experiment: Experiment, choice: Choice) -> list[Variant]:
    """Networks of an experiment that were asked for; without names, all but the systems published by others."""
    if choice.variants:
        return [variant for variant in experiment.variants if variant.name in choice.variants]
    return list(experiment.networks)


def plan_runs(experiments: Sequence[Experiment], choice: Choice, out: Path) -> list[PlannedRun]:
    """All trainings whose data is on this machine.

    All networks of the first seed come before any of the second, so that what is finished can be compared.

    Args:
        experiments: experiments to reproduce.
        choice: what the user asked for.
        out: folder of all results.
    """
    most = max((choice.seeds or experiment.seeds for experiment in experiments), default=0)
    runs = []
    for seed in range(most):
        for experiment in experiments:
            if seed >= (choice.seeds or experiment.seeds) or experiment.kind == "times":
                continue
            for study_data in wanted_data(experiment, choice):
                if not study_data.missing:
                    runs += [
                        _planned_run(experiment, study_data, variant, seed, choice, out)
                        for variant in wanted_variants(experiment, choice)
                    ]
    return runs


def _planned_run(
    experiment: Experiment, study_data: StudyData, variant: Variant, seed: int, choice: Choice, out: Path
) -> PlannedRun:
    recipe = run_recipe(experiment, study_data, variant, seed, choice)
    folder = run_folder(out, experiment, study_data.dataset, variant, seed).path
    return PlannedRun(experiment, study_data, variant, seed, recipe, folder, bool(choice.changes) or variant.own)


def study_folder(out: Path, experiment: Experiment, data: str) -> Path:
    """Folder of everything that belongs to one dataset of an experiment."""
    return out / RUNS / experiment.name / data


def run_folder(out: Path, experiment: Experiment, data: str, variant: Variant, seed: int) -> RunFolder:
    """Folder of a training."""
    return RunFolder(study_folder(out, experiment, data) / variant.name / f"{SEED_PREFIX}{seed}")


def describe_experiments(experiments: Sequence[Experiment]) -> str:
    """Text of ``paircaps reproduce --list``: for each experiment its data, its budget and its time on this machine."""
    step_times = StepTimes()
    lines = []
    for experiment in experiments:
        where = (
            f"not in the paper; after {experiment.derived_from}"
            if experiment.derived_from
            else f"section {experiment.section}"
        )
        lines += [f"{experiment.name}  {experiment.caption} ({where})"]
        lines += [f"    networks: {', '.join(variant.name for variant in experiment.networks)}"]
        if experiment.rivals:
            lines += [f"    published by others, with --only: {', '.join(rival.name for rival in experiment.rivals)}"]
        for study in experiment.studies:
            if experiment.kind == "times":
                lines.append(f"    {study.data}: needs no images; a forward pass of each network is timed, in a minute")
                continue
            study_data = available_data(study)
            length = _length_in_words(experiment, study_data, step_times)
            lines.append(f"    {study.data}: {_data_in_words(study_data)}; {length}")
        lines.append("")
    return "\n".join([*lines, *step_times.origins()]) + "\n"


def _data_in_words(study_data: StudyData) -> str:
    if study_data.missing:
        return study_data.missing
    return f"{study_data.dataset}, which is here, stands in for it" if study_data.is_stand_in else "is here"


def _length_in_words(experiment: Experiment, study_data: StudyData, step_times: StepTimes) -> str:
    """The paper's budget of a study, and how long all its networks would take here."""
    tree = read_tree(study_data.study.recipe)
    paper, recipe = _length_recipe(tree), _length_recipe(merge(tree, study_data.changes))
    budget = f"{paper.train.steps:,} steps" if paper.train.steps else f"{epochs_of(paper):g} epochs"
    seeds = "one seed" if experiment.seeds == 1 else f"{experiment.seeds} seeds"
    # networks of a study differ in nothing that the number of steps depends on, so that one recipe serves them all
    times = [step_times.find(study_data.study.recipe, variant.name) for variant in experiment.networks]
    hours = experiment.seeds * sum(training_time(recipe, step.seconds).seconds for step in times) / 3600
    here = f"about {hours:,.0f} hours" if hours >= 1.5 else f"about {max(1, round(60 * hours))} minutes"
    return (
        f"{experiment.length_reference} budget: {budget}, {seeds}; "
        f"all {len(times)} networks here: {here}, {measured_or_estimated(times)}"
    )


def _length_recipe(tree: RecipeTree) -> Recipe:
    """Recipe with the sections that a training's length depends on, and defaults in the others.

    It is built without the checks that a recipe of the user needs, which take 20 ms each.
    """
    return Recipe(
        data=Data(**tree["data"]), train=Train(**tree["train"]), evaluate=Evaluate(**tree.get("evaluate", {}))
    )
