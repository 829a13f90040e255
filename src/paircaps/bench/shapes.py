"""The capsule layers that are measured: those of every registered model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from paircaps.layers import CapsuleLayer
from paircaps.models import create_model, list_models
from paircaps.models.base import ImageModel
from paircaps.votes import VectorVotes
from paircaps.votes.layout import Layout


@dataclass(frozen=True)
class LayerShape:
    """Sizes of a capsule layer.

    Args:
        in_capsules: I.
        out_capsules: J.
        in_dim: K_in.
        pose_dim: K.
        transform: ``"matrix"`` or ``"vector"``.
        vote_norm: ``"pose"``, ``"vote"`` or None.
    """

    in_capsules: int
    out_capsules: int
    in_dim: int
    pose_dim: int
    transform: str
    vote_norm: str | None

    def layer(self, routing: str = "fm", streaming: bool | str = "auto", **options: object) -> CapsuleLayer:
        """A layer of this shape."""
        return CapsuleLayer(**asdict(self), routing=routing, streaming=streaming, routing_options=options)

    def children(self, batch: int) -> Tensor:
        """Random child capsules, which want a gradient."""
        return torch.randn(batch, self.in_capsules, self.in_dim).requires_grad_()

    def layout(self, batch: int) -> Layout:
        """Sizes of its votes."""
        rows = 1 if self.transform == "vector" else round(self.pose_dim**0.5)
        return Layout(batch, self.in_capsules, self.out_capsules, rows, self.in_dim // rows, self.pose_dim // rows)

    def votes_bytes(self, batch: int) -> int:
        """Of all votes in float32."""
        return 4 * batch * self.in_capsules * self.out_capsules * self.pose_dim

    def __str__(self) -> str:
        """For a table."""
        return (
            f"{self.in_capsules:,}×{self.in_dim} → {self.out_capsules:,}×{self.pose_dim} "
            f"{self.transform}, {'no' if self.vote_norm is None else self.vote_norm} norm"
        )


FULL = LayerShape(2048, 10, 8, 16, "vector", None)
"""Of CapsNet on CIFAR10, which the goals speak of."""


def shape_of_layer(layer: CapsuleLayer) -> LayerShape:
    """Its sizes."""
    norm = layer.norm
    kept = None if isinstance(norm, nn.Identity) else len(norm.shape)  # pyright: ignore[reportArgumentType]
    return LayerShape(
        layer.in_capsules,
        layer.out_capsules,
        layer.in_dim,
        layer.pose_dim,
        "vector" if isinstance(layer.votes, VectorVotes) else "matrix",
        {None: None, 1: "pose", 3: "vote"}[kept],
    )


def model_of_shapes(name: str, image_size: int, channels: int, classes: int, **options: object) -> ImageModel:
    """A model without memory: shapes only."""
    with torch.device("meta"):
        return create_model(name, classes, channels, image_size, **options)  # pyright: ignore[reportArgumentType]


def capsule_layers(model: nn.Module) -> list[CapsuleLayer]:
    """All of a model's."""
    return [part for part in model.modules() if isinstance(part, CapsuleLayer)]


def capsule_models() -> list[str]:
    """Registered models that have capsule layers, on images of CIFAR10's size."""
    return [name for name in list_models() if capsule_layers(model_of_shapes(name, 32, 3, 10))]


def registered_shapes() -> dict[LayerShape, list[str]]:
    """The different capsule layers of all registered models on CIFAR10, and whose they are."""
    shapes: dict[LayerShape, list[str]] = {}
    for name in capsule_models():
        for layer in capsule_layers(model_of_shapes(name, 32, 3, 10)):
            shapes.setdefault(shape_of_layer(layer), []).append(name)
    return shapes


def inference(layer: nn.Module, inputs: Tensor) -> Callable[[], object]:
    """A forward pass without gradients."""

    def run() -> None:
        with torch.inference_mode():
            layer(inputs)

    return run


def training(layer: nn.Module, inputs: Tensor) -> Callable[[], object]:
    """A forward and a backward pass from the activations, gradients anew each time."""

    def run() -> None:
        inputs.grad = None
        layer.zero_grad()
        layer(inputs).activation.sum().backward()

    return run
