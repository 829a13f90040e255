"""Folders of results as trainings leave them, made up in a moment."""

import json
from dataclasses import replace
from pathlib import Path

from paircaps.paper.experiments import experiments
from paircaps.paper.plan import Choice, candidate_data, run_folder, run_recipe
from paircaps.paper.training_length import Budget
from paircaps.training.recipe_io import to_toml

MACHINE = {"cpu": "a processor", "cores": 2, "commit": "abc1234"}
SHORT = Choice(Budget(epochs=2), short=True)


def variant_of(experiment, name):
    return next(variant for variant in experiment.variants if variant.name == name)


def finished(out, name, data, variant, seed, accuracy, *, choice=SHORT, train_accuracy=0.5, machine=MACHINE, **test):
    """Write the folder of a finished training; its weights are not there."""
    experiment = experiments()[name]
    network = variant_of(experiment, variant)
    study_data = next(
        study_data for study in experiment.studies for study_data in candidate_data(study) if study_data.dataset == data
    )
    recipe = run_recipe(experiment, study_data, network, seed, choice)
    if recipe.train.precision == "auto":  # a training writes down which one it took
        recipe = replace(recipe, train=replace(recipe.train, precision="fp32"))
    folder = run_folder(Path(out), experiment, data, network, seed)
    folder.path.mkdir(parents=True)
    rows = [
        {"kind": "step", "step": 50, "epoch": 0.5, "loss": 1.0, "accuracy": 0.25},
        {"kind": "epoch", "step": 100, "epoch": 1.0, "train_accuracy": 0.4, "validation_accuracy": 0.45},
        {"kind": "epoch", "step": 200, "epoch": 2.0, "train_accuracy": train_accuracy, "validation_accuracy": 0.55},
        {"kind": "test", "step": 200, "images": 10_000, "accuracy": accuracy, **test},
    ]
    folder.config.write_text(to_toml(recipe))
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder.model.write_text(json.dumps({"trained": {"machine": machine}}))
    return folder
