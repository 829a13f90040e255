"""Table 1: measure the inference time of a batch, for networks that other experiments train."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paircaps._utils.files import write_whole
from paircaps._utils.machine import describe_machine
from paircaps._utils.words import Say
from paircaps.bench.layer_shapes import inference_pass
from paircaps.bench.timing import interleaved, repeats_within
from paircaps.data.registry import require_metadata
from paircaps.errors import RecipeError, TrainingError
from paircaps.models import create_model
from paircaps.paper.experiments import Experiment, Variant, experiments
from paircaps.paper.plan import Choice, StudyData, run_recipe, study_folder, wanted_data, wanted_variants
from paircaps.paper.records import read_times
from paircaps.paper.training_length import Budget
from paircaps.training.recipe import Model, options_of
from paircaps.training.recipe_io import changed_values
from paircaps.training.run_folder import RunFolder

BATCH = 128
"""Images of a batch, as in the paper."""

MEASURED_SECONDS = 10.0
"""Time of all repeats of all networks together, in seconds, for a result."""

_BRIEF_SECONDS = 1.0
"""The same for a short command: one with a length or a limit."""

_BENCH_ROUTINGS = {"dynamic-1": "dynamic(1)", "dynamic": "dynamic(3)", "fm": "FM"}
_BENCH_IMAGES = {"cifar10": "CIFAR10", "fashion-mnist": "Fashion-MNIST"}
"""Names of variants and datasets in ``paircaps bench table1``."""


def measure_times(experiment: Experiment, choice: Choice, out: Path, say: Say) -> None:
    """Measure the times of an experiment and write them as rows of metrics; complete measurements are kept.

    Args:
        experiment: experiment of kind ``times``.
        choice: what the user asked for.
        out: folder of all results.
        say: called with each progress line.

    Raises:
        TrainingError: if networks with other settings were measured in the same folder.
    """
    brief = choice.budget != Budget() or bool(choice.lengths) or choice.limit is not None
    for study_data in wanted_data(experiment, choice):
        file = RunFolder(study_folder(out, experiment, study_data.dataset)).metrics
        # Read what was measured before, and compare its settings with those of now.
        measured = read_times(file)
        recipes = {
            variant.name: run_recipe(experiment, study_data, variant, 0, choice) for variant in experiment.variants
        }
        settings = {
            variant.name: _network_settings(experiment, study_data, variant, choice) for variant in experiment.variants
        }
        other = [name for name, row in measured.items() if row.get("settings", {}) != settings.get(name, {})]
        if other:
            raise TrainingError(
                f"{file}: {', '.join(other)} was measured with other settings. Take those, or another --out"
            )
        # Decide what to measure, and for how long: at least as long as before.
        seconds = max([_BRIEF_SECONDS if brief else MEASURED_SECONDS, *(row["seconds"] for row in measured.values())])
        wanted = {variant.name for variant in wanted_variants(experiment, choice)}
        if wanted <= set(measured) and all(row["seconds"] >= seconds for row in measured.values()):
            say(f"{experiment.name}, {study_data.dataset}: was measured already")
            continue
        # Measure all networks in turn, so that they share the same conditions, and replace the file.
        say(f"{experiment.name}, {study_data.dataset}: measuring")
        models = {variant: recipes[variant].model for variant in recipes if variant in wanted | set(measured)}
        rows = time_inference(models, study_data.dataset, seconds)
        lines = [{"kind": "machine", **describe_machine()}]
        lines += [{"kind": "time", **row, "settings": settings[row["variant"]]} for row in rows]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, "".join(json.dumps(line) + "\n" for line in lines).encode())


def _network_settings(
    experiment: Experiment, study_data: StudyData, variant: Variant, choice: Choice
) -> dict[str, str]:
    """Settings of the network that ``--set`` changed: nothing else changes the time of a forward pass."""
    plain, asked = (
        run_recipe(experiment, study_data, variant, 0, options) for options in (replace(choice, changes={}), choice)
    )
    return {key: value for key, (_, value) in changed_values(plain, asked).items() if key.startswith("model.")}


def time_inference(models: Mapping[str, Model], data: str, seconds: float) -> list[dict[str, Any]]:
    """Measure the forward pass of several networks, taking turns, on one batch of noise.

    Weights and images do not change the time.

    Args:
        models: sections ``model`` of recipes, by name.
        data: dataset whose shape and classes the images have.
        seconds: approximate time of all repeats of all networks together.

    Returns:
        A row for each network, with times in milliseconds.
    """
    metadata = require_metadata(data)
    channels, side, _ = metadata.shape
    classes, images = len(metadata.classes), torch.randn(BATCH, channels, side, side)
    runs = {}
    for name, model in models.items():
        options = options_of(model.options)
        if model.routing_options:
            options["routing_options"] = options_of(model.routing_options)
        try:
            network = create_model(model.name, classes, channels, side, model.routing, **options)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError) as error:
            raise RecipeError(f"model: {error}") from None
        runs[name] = inference_pass(network.eval(), images)
    timings = interleaved(runs, repeats_within(runs, seconds))
    return [
        {"variant": name, "batch": BATCH, "seconds": seconds, **timing.in_milliseconds()}
        for name, timing in timings.items()
    ]


def paper_times() -> dict[str, dict[str, float]]:
    """Milliseconds of a batch on the authors' CPU, by images and routing as ``paircaps bench table1`` names them."""
    table = experiments()["table1"]
    return {
        title: {
            case: row.paper[data].mean
            for row in table.rows
            for variant, case in _BENCH_ROUTINGS.items()
            if row.variant and row.variant.name == variant
        }
        for data, title in _BENCH_IMAGES.items()
    }
