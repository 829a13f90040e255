"""``paircaps reproduce --list``: what each experiment needs, and how long it would take on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from paircaps.paper.budget import epochs_of
from paircaps.paper.experiments import Experiment
from paircaps.paper.plan import Choice, StudyData, paper_recipe, run_recipe, source_here
from paircaps.paper.time_estimate import pace_of


def listed(experiments: Sequence[Experiment]) -> str:
    """A paragraph an experiment; every network is timed for a moment."""
    lines = []
    for experiment in experiments:
        where = f"not in the paper; after {experiment.after}" if experiment.after else f"section {experiment.section}"
        lines += [f"{experiment.name}  {experiment.caption} ({where})"]
        lines += [f"    networks: {', '.join(variant.name for variant in experiment.variants)}"]
        for study in experiment.studies:
            source = source_here(study)
            if experiment.kind == "times":
                lines.append(f"    {study.data}: needs no images; a forward pass of each network is timed, in a minute")
                continue
            lines.append(f"    {study.data}: {_data(source)}; {_length(experiment, source)}")
        lines.append("")
    lines.append("Times are guesses from a few steps on noise: good to a factor of about 1.5 on a quiet machine.")
    return "\n".join(lines) + "\n"


def _data(source: StudyData) -> str:
    if source.missing:
        return source.missing
    return f"{source.data}, which is here, stands in for it" if source.is_stand_in else "is here"


def _length(experiment: Experiment, source: StudyData) -> str:
    paper = paper_recipe(source.study)
    budget = f"{paper.train.steps:,} steps" if paper.train.steps else f"{epochs_of(paper):g} epochs"
    recipes = [run_recipe(experiment, source, variant, 0, Choice()) for variant in experiment.variants]
    hours = experiment.seeds * sum(pace_of(recipe).seconds for recipe in recipes) / 3600
    seeds = "one seed" if experiment.seeds == 1 else f"{experiment.seeds} seeds"
    here = f"about {hours:,.0f} hours" if hours >= 1.5 else f"about {max(1, round(60 * hours))} minutes"
    return f"{experiment.whose} budget: {budget}, {seeds}; all {len(recipes)} networks here: {here}"
