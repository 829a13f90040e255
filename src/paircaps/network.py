"""A network ready for pictures: a model, what happens to an image before it, its classes, and maybe a decoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_bool, require_choice, require_positive, require_sizes
from paircaps._utils.images import as_float, middle, standardise
from paircaps.functional import Capsules
from paircaps.models import DeconvDecoder, DenseDecoder, ImageModel, create_model
from paircaps.models.decoder import Decoder

DECODERS = ("none", "deconv", "dense")


@dataclass(frozen=True)
class Preparation:
    """What happens to every image, in training and ever after; so it belongs to the network and is saved with it.

    Args:
        size: (height, width) of an image as it comes; a picture of another size is resized to this.
        crop: (height, width) of the middle that the model sees.
        standardise: give each image mean 0 and deviation 1; otherwise it stays in 0..1.
    """

    size: tuple[int, int]
    crop: tuple[int, int]
    standardise: bool = False

    def __post_init__(self) -> None:
        require_sizes("size", self.size, 2)
        require_sizes("crop", self.crop, 2)
        require_bool(standardise=self.standardise)
        if self.crop[0] > self.size[0] or self.crop[1] > self.size[1]:
            raise ValueError(f"crop {self.crop} is larger than the image, {self.size}")


@dataclass(frozen=True)
class NetworkSpec:
    """All it takes to build a network again, but its weights.

    Args:
        model: one of ``list_models()``.
        arguments: of ``create_model``, all of them things that JSON knows.
        classes: their names.
        preparation: of an image.
        decoder: ``"none"``, ``"deconv"`` (the paper's) or ``"dense"`` (the first CapsNet's).
        labels_per_image: how many classes an image shows: 1, or 2 where digits lie over each other.
    """

    model: str
    arguments: Mapping[str, object]
    classes: tuple[str, ...]
    preparation: Preparation
    decoder: str = "none"
    labels_per_image: int = 1

    def __post_init__(self) -> None:
        require_choice("decoder", self.decoder, DECODERS)
        require_positive(labels_per_image=self.labels_per_image)
        if self.arguments.get("num_classes") != len(self.classes):
            raise ValueError(f"{len(self.classes)} classes for a model of {self.arguments.get('num_classes')}")

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


class Network(nn.Module):
    """Images in 0..1 to capsules, and back by the decoder if there is one.

    Args:
        spec: what to build.
    """

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        self.model = create_model(spec.model, **dict(spec.arguments))  # pyright: ignore[reportArgumentType]
        self.decoder = _create_decoder(spec.decoder, self.model)

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names, one a capsule."""
        return self.spec.classes

    def forward(self, images: Tensor) -> Capsules:
        """Images (B, C, H, W), in 0..1 or uint8 and of the size of the model or of its preparation, to capsules."""
        return self.model(self.model_input(images))

    def model_input(self, images: Tensor) -> Tensor:
        """Images as they come to what goes into the model."""
        images = self.prepare(images)
        return standardise(images) if self.spec.preparation.standardise else images

    def prepare(self, images: Tensor) -> Tensor:
        """Images as they come to what the model sees of them, in 0..1: the original of a reconstruction."""
        images = as_float(images)
        if images.dim() == 4 and tuple(images.shape[-2:]) == self.spec.preparation.size:
            images = middle(images, self.spec.preparation.crop)
        return images

    def reconstruct(self, images: Tensor, label: Tensor | None = None) -> Tensor:
        """Images redrawn from the pose of their most active capsule, or of the labelled one: (B, C, H, W) in 0..1."""
        if self.decoder is None:
            raise ValueError("this network was trained without a decoder: it cannot redraw its input")
        return self.decoder(self(images), label)

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """The class index of each image, (B,), or where images show two classes those of both, (B, 2)."""
        with self.evaluating():
            return most_active(self(images).activation, self.spec.labels_per_image)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """In eval mode as long as a block lasts: to look at a network must not change it."""
        was_training = self.training
        try:
            self.eval()
            yield
        finally:
            self.train(was_training)


def most_active(activation: Tensor, count: int) -> Tensor:
    """The class of the most active capsule, (B,), or those of several, the most active one first, (B, count)."""
    return activation.argmax(-1) if count == 1 else activation.topk(count).indices


def _create_decoder(kind: str, model: ImageModel) -> Decoder | None:
    if kind == "none":
        return None
    if kind == "deconv":
        return DeconvDecoder(model.pose_dim, model.image_size, model.in_channels)
    return DenseDecoder(model.num_classes, model.pose_dim, model.image_size, model.in_channels)
