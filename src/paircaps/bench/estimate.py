"""Will it fit? Parameters, operations and memory of a model, before it is run.

The model is built and run on tensors that have shapes and no memory, and those that live at the same time are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from paircaps.bench.live import LiveBytes
from paircaps.bench.scaling import available_memory
from paircaps.bench.shapes import capsule_layers, model_of_shapes, shape_of_layer
from paircaps.models import count_parameters
from paircaps.models.base import ImageModel
from paircaps.routing import list_routings


@dataclass(frozen=True)
class Estimate:
    """What a model with one routing takes on a CPU, in float32.

    Args:
        routing: its name; empty for a model that has none.
        parameters: trainable ones.
        inference_flops: of a forward pass.
        training_flops: of a forward and a backward pass.
        votes_bytes: of all votes of all capsule layers, which need not all be held.
        inference_bytes: at the peak of a forward pass, weights and images included.
        training_bytes: at the peak of a forward and backward pass, weights, gradients and images included.
        adam_bytes: more, for Adam's two averages; SGD with momentum keeps half of it.
    """

    routing: str
    parameters: int
    inference_flops: int
    training_flops: int
    votes_bytes: int
    inference_bytes: int
    training_bytes: int
    adam_bytes: int


def estimate(
    name: str,
    image_size: int,
    classes: int,
    batch: int,
    channels: int = 3,
    routings: Sequence[str] = (),
    **options: object,
) -> list[Estimate]:
    """Estimate a model with each routing.

    Args:
        name: of a registered model.
        image_size: side of an image.
        classes: capsules of the last layer.
        batch: images.
        channels: of an image.
        routings: names; all registered ones unless told. A model without capsule layers has one row.
        options: of the model.
    """
    found = []
    for routing in routings or list_routings():
        model = model_of_shapes(name, image_size, channels, classes, routing=routing, **options)
        found.append(_estimate(model, routing, batch))
        if not capsule_layers(model):
            break
    return found


def _estimate(model: ImageModel, routing: str, batch: int) -> Estimate:
    layers = capsule_layers(model)
    inference_flops, inference_bytes = _pass(model.eval(), batch)
    training_flops, training_bytes = _pass(model.train(), batch)
    parameters = count_parameters(model)
    return Estimate(
        routing if layers else "",
        parameters,
        inference_flops,
        training_flops,
        sum(shape_of_layer(layer).votes_bytes(batch) for layer in layers),
        inference_bytes,
        training_bytes,
        2 * 4 * parameters,
    )


def _pass(model: ImageModel, batch: int) -> tuple[int, int]:
    """Operations and bytes of a pass: forward and backward if the model is in training mode, else forward."""
    images = torch.empty(batch, model.in_channels, *model.image_size, device="meta")
    live = LiveBytes()
    live.hold(images, *model.parameters(), *model.buffers())
    with live, torch.set_grad_enabled(model.training):
        activation = model(images).activation
        if model.training:
            activation.sum().backward()
    model.zero_grad()
    return live.flops, live.peak


def as_json(rows: Sequence[Estimate]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(row) for row in rows]


def as_text(rows: Sequence[Estimate], batch: int) -> str:
    """A table for people, and whether it fits here."""
    free = available_memory()
    lines = [
        "| routing | parameters | GFLOP: forward | with backward | votes | memory: inference | training | fits here |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.routing or 'none'} | {row.parameters:,} | {row.inference_flops / 1e9:,.2f} | "
            f"{row.training_flops / 1e9:,.2f} | {_size(row.votes_bytes)} | {_size(row.inference_bytes)} | "
            f"{_size(row.training_bytes)} | {_fits(row, free)} |"
        )
    lines += [
        "",
        f"A batch of {batch}, float32, on a CPU: at the peak, with weights, images and gradients. Adam keeps another "
        f"{_size(rows[0].adam_bytes)}; Python and PyTorch take some 0.3 GB themselves. Free here: {_size(free)}.",
    ]
    return "\n".join(lines) + "\n"


def _fits(row: Estimate, free: int) -> str:
    if row.training_bytes + row.adam_bytes < free:
        return "yes"
    return "inference only" if row.inference_bytes < free else "no"


def _size(count: int) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
