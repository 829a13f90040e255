"""Estimate of parameters, operations and memory of a model, before it is run.

The model is built and run on meta tensors, which have shapes but take no memory, and the bytes of all tensors that are
alive at the same time are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from paircaps._utils.words import as_size
from paircaps.bench.layer_shapes import capsule_layers, meta_model
from paircaps.bench.memory import available_memory
from paircaps.bench.meta_memory import MetaMemory
from paircaps.layers import CapsuleLayer, ConvCapsuleLayer, MapCapsuleLayer
from paircaps.models import count_parameters
from paircaps.models.base import ImageModel
from paircaps.models.registry import resolve_routing
from paircaps.routing import Routing, list_routings
from paircaps.votes.layout import IMAGE_BYTES

FEW_PIECES = 8
"""Pieces in the smaller of the two batches that are counted; the larger one has twice as many."""


@dataclass(frozen=True)
class Estimate:
    """Operations and memory of a model with one routing on a CPU, in float32.

    Args:
        routing: name of the routing; empty for a model without capsule layers.
        parameters: number of trainable parameters.
        inference_flops: operations of a forward pass.
        training_flops: operations of a forward and backward pass.
        votes_bytes: bytes of all votes of all capsule layers, which need not be in memory at the same time.
        inference_bytes: bytes at the peak of a forward pass, with weights and images.
        training_bytes: bytes at the peak of a forward and backward pass, with weights, gradients and images.
        adam_bytes: additional bytes for Adam's two averages; SGD with momentum needs half of it.
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
        name: name of a registered model.
        image_size: side of an image in pixels.
        classes: number of classes.
        batch: images in a batch.
        channels: channels of an image.
        routings: names of routings, ``"auto"`` for the one that the model is published with; all registered ones if
            empty.
        options: options of the model.

    Returns:
        one estimate per routing; a single one for a model without capsule layers.
    """
    estimates = []
    for routing in [resolve_routing(name, routing) for routing in routings] or list_routings():
        model = meta_model(name, image_size, channels, classes, routing=routing, **options)
        estimates.append(_estimate(model, routing, batch))
        if not capsule_layers(model):
            break
    return estimates


def _estimate(model: ImageModel, routing: str, batch: int) -> Estimate:
    """Estimate a model that is built already."""
    votes = votes_of_layers(model)
    inference_flops, inference_bytes = _passes(model.eval(), batch)
    training_flops, training_bytes = _passes(model.train(), batch)
    parameters = count_parameters(model)
    return Estimate(
        routing if votes else "",
        parameters,
        inference_flops,
        training_flops,
        batch * sum(votes.values()),
        inference_bytes,
        training_bytes,
        2 * 4 * parameters,
    )


def _passes(model: ImageModel, batch: int) -> tuple[int, int]:
    """Operations and peak bytes of a pass, extrapolated from two smaller batches where images are routed in pieces.

    Operations and memory of a batch of many pieces grow by the same amount with every piece.
    """
    votes = votes_of_layers(model).items()
    routed = [size for layer, size in votes if isinstance(layer.routing, Routing) and layer.routing.by_image]
    # the layer with the largest pieces: a batch of few pieces may be routed as a whole, and says nothing of larger ones
    piece = max((max(1, IMAGE_BYTES // size) for size in routed), default=batch)
    few, more = FEW_PIECES * piece, 2 * FEW_PIECES * piece
    if batch <= more:
        return _pass(model, batch)
    one, two = _pass(model, few), _pass(model, more)
    flops, peak = (b + (b - a) * (batch - more) // (more - few) for a, b in zip(one, two, strict=True))
    return flops, peak


def votes_of_layers(model: ImageModel) -> dict[CapsuleLayer | ConvCapsuleLayer | MapCapsuleLayer, int]:
    """Bytes of the votes of one image in every capsule layer of a model on the meta device, in float32.

    Args:
        model: the model; images are of its own size.
    """
    votes: dict[CapsuleLayer | ConvCapsuleLayer | MapCapsuleLayer, int] = {}

    def count(layer: Any, inputs: tuple[Any, ...]) -> None:
        votes[layer] = 4 * layer.votes_shape(*inputs).numel() // 2

    layers = [part for part in model.modules() if isinstance(part, CapsuleLayer | ConvCapsuleLayer | MapCapsuleLayer)]
    hooks = [layer.register_forward_pre_hook(count) for layer in layers]
    # two images, for batch norm in training has no statistics of one
    with torch.no_grad():
        model(torch.empty(2, model.in_channels, *model.image_size, device="meta"))
    for hook in hooks:
        hook.remove()
    return votes


def _pass(model: ImageModel, batch: int) -> tuple[int, int]:
    """Operations and peak bytes of a pass: forward and backward if the model is in training mode, else forward."""
    images = torch.empty(batch, model.in_channels, *model.image_size, device="meta")
    memory = MetaMemory()
    memory.hold(images, *model.parameters(), *model.buffers())
    with memory, torch.set_grad_enabled(model.training):
        activation = model(images).activation
        if model.training:
            activation.sum().backward()
    model.zero_grad()
    return memory.flops, memory.peak


def as_json(rows: Sequence[Estimate]) -> list[dict[str, Any]]:
    """Convert estimates to JSON objects."""
    return [asdict(row) for row in rows]


def as_text(rows: Sequence[Estimate], images: str) -> str:
    """Format estimates as a table that says what fits into this machine's memory.

    Args:
        rows: the estimates.
        images: description of the batch, the beginning of a sentence.
    """
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
    """Whether training with Adam, or else inference alone, fits into ``free`` bytes."""
    if row.training_bytes + row.adam_bytes < free:
        return "yes"
    return "inference only" if row.inference_bytes < free else "no"
