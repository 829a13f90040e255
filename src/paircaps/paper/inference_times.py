"""Table 1: milliseconds of a batch at inference, of the networks that other experiments train."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paircaps._utils.files import write_whole
from paircaps._utils.machine import describe_machine
from paircaps.bench.shapes import inference
from paircaps.bench.timing import interleaved, repeats_within
from paircaps.data.metadata import METADATA
from paircaps.errors import RecipeError, TrainingError
from paircaps.models import create_model
from paircaps.paper.experiments import Experiment, Variant, experiments
from paircaps.paper.plan import Choice, StudyData, run_recipe, study_folder, wanted_sources, wanted_variants
from paircaps.paper.records import read_times
from paircaps.paper.training_length import Budget
from paircaps.training.recipe import Model, options_of
from paircaps.training.recipe_io import changed_values
from paircaps.training.run_folder import RunFolder

BATCH = 128
MEASURED = 10.0
"""Seconds of repeats, of all networks together, that make a result."""

_BRIEF = 1.0
"""The same of a trial."""

_CASES = {"dynamic-1": "dynamic(1)", "dynamic": "dynamic(3)", "fm": "FM"}
_IMAGES = {"cifar10": "CIFAR10", "fashion-mnist": "Fashion-MNIST"}


def measure_times(experiment: Experiment, choice: Choice, out: Path, say: Callable[[str], None]) -> None:
    """Rows of times, as of a training: what is whole and was not measured in haste is not measured again.

    Args:
        experiment: of times.
        choice: how much of it.
        out: the folder of all results.
        say: told what happens, a line at a time.
    """
    brief = choice.budget != Budget() or bool(choice.lengths) or choice.limit is not None
    for source in wanted_sources(experiment, choice):
        file = RunFolder(study_folder(out, experiment, source.data)).metrics
        there = read_times(file)
        recipes = {variant.name: run_recipe(experiment, source, variant, 0, choice) for variant in experiment.variants}
        settings = {
            variant.name: _network_settings(experiment, source, variant, choice) for variant in experiment.variants
        }
        other = [name for name, row in there.items() if row.get("settings", {}) != settings.get(name, {})]
        if other:
            raise TrainingError(
                f"{file}: {', '.join(other)} was measured with other settings. Take those, or another --out"
            )
        seconds = max([_BRIEF if brief else MEASURED, *(row["seconds"] for row in there.values())])
        wanted = {variant.name for variant in wanted_variants(experiment, choice)}
        if wanted <= set(there) and all(row["seconds"] >= seconds for row in there.values()):
            say(f"{experiment.name}, {source.data}: was measured already")
            continue
        say(f"{experiment.name}, {source.data}: measuring")
        models = {variant: recipes[variant].model for variant in recipes if variant in wanted | set(there)}
        rows = time_inference(models, source.data, seconds)
        lines = [{"kind": "machine", **describe_machine()}]
        lines += [{"kind": "time", **row, "settings": settings[row["variant"]]} for row in rows]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, "".join(json.dumps(line) + "\n" for line in lines).encode())


def _network_settings(experiment: Experiment, source: StudyData, variant: Variant, choice: Choice) -> dict[str, str]:
    """What was set by hand of a network: nothing else changes the time of a forward pass."""
    plain, asked = (run_recipe(experiment, source, variant, 0, made) for made in (replace(choice, changes={}), choice))
    return {key: value for key, (_, value) in changed_values(plain, asked).items() if key.startswith("model.")}


def time_inference(models: Mapping[str, Model], data: str, seconds: float) -> list[dict[str, Any]]:
    """A row a network, taken in turn on one batch of noise: weights and images do not change the time.

    Args:
        models: by name.
        data: whose shape the images have.
        seconds: that all repeats of all networks take together, more or less.
    """
    channels, side, _ = METADATA[data].shape
    classes, images = len(METADATA[data].classes), torch.randn(BATCH, channels, side, side)
    runs = {}
    for name, model in models.items():
        options = options_of(model.options)
        if model.routing_options:
            options["routing_options"] = options_of(model.routing_options)
        try:
            network = create_model(model.name, classes, channels, side, model.routing, **options)
        except (TypeError, ValueError) as error:
            raise RecipeError(f"model: {error}") from None
        runs[name] = inference(network.eval(), images)
    timings = interleaved(runs, repeats_within(runs, seconds))
    return [
        {"variant": name, "batch": BATCH, "seconds": seconds, **timing.in_milliseconds()}
        for name, timing in timings.items()
    ]


def paper_times() -> dict[str, dict[str, float]]:
    """Milliseconds on the authors' CPU, by the names of ``paircaps bench table1``."""
    table = experiments()["table1"]
    return {
        title: {
            case: row.paper[data].mean
            for row in table.rows
            for variant, case in _CASES.items()
            if row.variant and row.variant.name == variant
        }
        for data, title in _IMAGES.items()
    }
