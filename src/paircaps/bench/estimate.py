"""Will it fit? Parameters, operations and memory of a model, before it is run.

The model is built and run on tensors that have shapes and no memory, and those that live at the same time are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from paircaps.bench.memory import as_size, available_memory
from paircaps.bench.meta_memory import MetaMemory
from paircaps.bench.shapes import capsule_layers, model_of_shapes, shape_of_layer
from paircaps.models import count_parameters
from paircaps.models.base import ImageModel
from paircaps.routing import Routing, list_routings
from paircaps.votes.layout import tile_images

FEW_PIECES = 8
"""Of a batch, from which the rest can be told."""


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
    inference_flops, inference_bytes = _passes(model.eval(), batch)
    training_flops, training_bytes = _passes(model.train(), batch)
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


def _passes(model: ImageModel, batch: int) -> tuple[int, int]:
    """Operations and bytes of a pass, told from two smaller ones where images are routed a few at a time.

    What a batch of many such pieces takes grows by the same amount with every piece.
    """
    routed = [layer for layer in capsule_layers(model) if isinstance(layer.routing, Routing) and layer.routing.by_image]
    shapes = [shape_of_layer(layer) for layer in routed]
    piece = min((tile_images(s.in_capsules, s.out_capsules, s.pose_dim) for s in shapes), default=batch)
    few, more = FEW_PIECES * piece, 2 * FEW_PIECES * piece
    if batch <= more:
        return _pass(model, batch)
    one, two = _pass(model, few), _pass(model, more)
    flops, peak = (b + (b - a) * (batch - more) // (more - few) for a, b in zip(one, two, strict=True))
    return flops, peak


def _pass(model: ImageModel, batch: int) -> tuple[int, int]:
    """Operations and bytes of a pass: forward and backward if the model is in training mode, else forward."""
    images = torch.empty(batch, model.in_channels, *model.image_size, device="meta")
    live = MetaMemory()
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


def as_text(rows: Sequence[Estimate], images: str) -> str:
    """A table for people, and whether it fits here; ``images`` says what a batch is."""
    free = available_memory()
    lines = [
        "| routing | parameters | GFLOP: forward | with backward | votes | memory: inference | training | fits here |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.routing or 'none'} | {row.parameters:,} | {row.inference_flops / 1e9:,.2f} | "
            f"{row.training_flops / 1e9:,.2f} | {as_size(row.votes_bytes)} | {as_size(row.inference_bytes)} | "
            f"{as_size(row.training_bytes)} | {_fits(row, free)} |"
        )
    lines += [
        "",
        f"{images}, float32, on a CPU: at the peak, with weights, images and gradients. Adam keeps another "
        f"{as_size(rows[0].adam_bytes)}; Python and PyTorch take some 0.3 GB themselves, and the C library may keep "
        f"tens of MB that were freed. Free here: {as_size(free)}.",
    ]
    return "\n".join(lines) + "\n"


def _fits(row: Estimate, free: int) -> str:
    if row.training_bytes + row.adam_bytes < free:
        return "yes"
    return "inference only" if row.inference_bytes < free else "no"
