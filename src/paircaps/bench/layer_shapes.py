"""Sizes of the capsule layers of all registered models, and passes through a layer that can be timed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from paircaps.layers import CapsuleLayer
from paircaps.models import create_model, list_models
from paircaps.models.base import ImageModel
from paircaps.votes import VectorVotes
from paircaps.votes.kernels.choice import only
from paircaps.votes.layout import Layout


@dataclass(frozen=True)
class LayerShape:
    """Sizes of a capsule layer.

    Args:
        in_capsules: number of children I.
        out_capsules: number of parents J.
        in_dim: pose dimensions of a child.
        pose_dim: pose dimensions K of a parent.
        transform: kind of votes, ``"matrix"`` or ``"vector"``.
        vote_norm: normalisation of votes, ``"pose"``, ``"vote"`` or None.
        kinds: kinds of children that share their matrices at all positions; None if each child has its own.
    """

    in_capsules: int
    out_capsules: int
    in_dim: int
    pose_dim: int
    transform: str
    vote_norm: str | None
    kinds: int | None = None

    def layer(self, routing: str = "fm", streaming: bool | str = "auto", **options: object) -> CapsuleLayer:
        """Build a layer of these sizes.

        Args:
            routing: name of the routing.
            streaming: whether votes are streamed; ``"auto"`` lets the layer decide.
            options: options of the routing.
        """
        sizes = asdict(self)
        kinds = sizes.pop("kinds")
        if kinds is not None:
            sizes |= {"in_capsules": (self.in_capsules // kinds, 1, kinds), "share": "position"}
        return CapsuleLayer(**sizes, routing=routing, streaming=streaming, routing_options=options)

    def random_children(self, batch: int) -> Tensor:
        """Random child capsules that require a gradient, (batch, I, K_in), or a grid where positions share matrices."""
        grid = (self.in_capsules,) if self.kinds is None else (self.in_capsules // self.kinds, 1, self.kinds)
        return torch.randn(batch, *grid, self.in_dim).requires_grad_()

    def layout(self, batch: int) -> Layout:
        """Sizes of the votes of a batch."""
        rows = 1 if self.transform == "vector" else round(self.pose_dim**0.5)
        return Layout(batch, self.in_capsules, self.out_capsules, rows, self.in_dim // rows, self.pose_dim // rows)

    def votes_bytes(self, batch: int) -> int:
        """Bytes of all votes of a batch in float32."""
        return 4 * batch * self.in_capsules * self.out_capsules * self.pose_dim

    def __str__(self) -> str:
        """Describe the sizes in one line of a table."""
        return (
            f"{self.in_capsules:,}×{self.in_dim} → {self.out_capsules:,}×{self.pose_dim} "
            f"{self.transform}, {'no' if self.vote_norm is None else self.vote_norm} norm"
            f"{'' if self.kinds is None else f', {self.kinds} kinds shared'}"
        )


CAPSNET_LAYER = LayerShape(2048, 10, 8, 16, "vector", None)
"""Capsule layer of CapsNet on CIFAR10, for which the goals of the benchmarks are stated."""


def shape_of_layer(layer: CapsuleLayer) -> LayerShape:
    """Sizes of a capsule layer."""
    norm = layer.norm
    kept = None if isinstance(norm, nn.Identity) else len(norm.shape)  # pyright: ignore[reportArgumentType]
    return LayerShape(
        layer.in_capsules,
        layer.out_capsules,
        layer.in_dim,
        layer.pose_dim,
        "vector" if isinstance(layer.votes, VectorVotes) else "matrix",
        {None: None, 1: "pose", 3: "vote"}[kept],
        len(layer.votes.weight) if layer.share else None,
    )


def meta_model(name: str, image_size: int, channels: int, classes: int, **options: object) -> ImageModel:
    """Build a model on the meta device: its tensors have shapes, but take no memory."""
    with torch.device("meta"):
        return create_model(name, classes, channels, image_size, **options)  # pyright: ignore[reportArgumentType]


def capsule_layers(model: nn.Module) -> list[CapsuleLayer]:
    """All capsule layers of a model."""
    return [part for part in model.modules() if isinstance(part, CapsuleLayer)]


def capsule_models() -> list[str]:
    """Names of the registered models that have capsule layers."""
    return [name for name in list_models() if capsule_layers(meta_model(name, 32, 3, 10))]


def registered_shapes() -> dict[LayerShape, list[str]]:
    """Different capsule layers of all registered models on CIFAR10, with the names of their models."""
    shapes: dict[LayerShape, list[str]] = {}
    for name in capsule_models():
        for layer in capsule_layers(meta_model(name, 32, 3, 10)):
            shapes.setdefault(shape_of_layer(layer), []).append(name)
    return shapes


def inference_pass(layer: nn.Module, inputs: Tensor, path: str | None = None) -> Callable[[], object]:
    """Return a function that runs a forward pass without gradients.

    Args:
        layer: a capsule layer or network.
        inputs: what it is called with.
        path: path of the sums, a key of ``votes.kernels.choice.PATHS``; None for the one that is chosen anyway.
    """

    def run() -> None:
        with torch.inference_mode(), _on(path):
            layer(inputs)

    return run


def training_pass(layer: nn.Module, inputs: Tensor, path: str | None = None) -> Callable[[], object]:
    """Return a function that runs a forward pass and a backward pass from the activations.

    Gradients are discarded at the beginning of each run.

    Args:
        layer: a capsule layer or network.
        inputs: what it is called with.
        path: path of the sums; see :func:`inference_pass`.
    """

    def run() -> None:
        inputs.grad = None
        layer.zero_grad()
        with _on(path):
            layer(inputs).activation.sum().backward()

    return run


def _on(path: str | None) -> AbstractContextManager[None]:
    return nullcontext() if path is None else only(path)
