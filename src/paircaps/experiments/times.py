"""Table 1: milliseconds of a batch at inference, of the networks that other experiments train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from paircaps.bench.shapes import inference
from paircaps.bench.timing import interleaved, repeats_within
from paircaps.data.cards import CARDS
from paircaps.errors import RecipeError
from paircaps.experiments.paper import experiments
from paircaps.models import create_model
from paircaps.training.recipe import Model, options_of

BATCH = 128
MEASURED = 10.0
"""Seconds of repeats, of all networks together, that make a result."""

_CASES = {"dynamic-1": "dynamic(1)", "dynamic": "dynamic(3)", "fm": "FM"}
_IMAGES = {"cifar10": "CIFAR10", "fashion-mnist": "Fashion-MNIST"}


def time_inference(models: Mapping[str, Model], data: str, seconds: float) -> list[dict[str, Any]]:
    """A row a network, taken in turn on one batch of noise: weights and images do not change the time.

    Args:
        models: by name.
        data: whose shape the images have.
        seconds: that all repeats of all networks take together, more or less.
    """
    channels, side, _ = CARDS[data].shape
    classes, images = len(CARDS[data].classes), torch.randn(BATCH, channels, side, side)
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
