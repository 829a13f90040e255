"""A network ready to classify images: a model with its classes, the preparation of images, and maybe a decoder."""

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
    """Preparation of every image, in training and prediction alike, and therefore saved with the network.

    Args:
        size: (height, width) of an image as it comes; a picture of another size is resized to this.
        crop: (height, width) of the centre crop that the model gets.
        standardise: whether each image gets mean 0 and standard deviation 1; otherwise it stays in 0..1.
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
    """Everything that is needed to build a network again, except its weights.

    Args:
        model: name of the model, one of ``list_models()``.
        arguments: arguments of ``create_model``, all of types that JSON has.
        classes: names of the classes.
        preparation: preparation of an image.
        decoder: ``"none"``, ``"deconv"`` (the paper's) or ``"dense"`` (the first CapsNet's).
        labels_per_image: number of classes that an image shows: 1, or 2 where digits overlap.
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
        """All fields by name, for JSON."""
        return asdict(self)


class Network(nn.Module):
    """Model and decoder with the preparation of images and the names of the classes.

    Args:
        spec: specification of the network.
    """

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        self.model = create_model(spec.model, **dict(spec.arguments))  # pyright: ignore[reportArgumentType]
        self.decoder = _create_decoder(spec.decoder, self.model)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, one for each capsule."""
        return self.spec.classes

    def forward(self, images: Tensor) -> Capsules:
        """Images (B, C, H, W) to capsules.

        Args:
            images: floats in 0..1 or uint8, of the model's size or of the size before the centre crop.
        """
        return self.model(self.model_input(images))

    def model_input(self, images: Tensor) -> Tensor:
        """Input of the model: images prepared and, if the network does so, standardised."""
        images = self.prepare(images)
        return standardise(images) if self.spec.preparation.standardise else images

    def prepare(self, images: Tensor) -> Tensor:
        """Images as floats in 0..1, cropped to the model's size: what a decoder should reconstruct."""
        images = as_float(images)
        if images.dim() == 4 and tuple(images.shape[-2:]) == self.spec.preparation.size:
            images = middle(images, self.spec.preparation.crop)
        return images

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Let the model compute what it takes from training images before the first step; most take nothing.

        Args:
            images: training images, as for a call.
        """
        self.model.fit(self.model_input(images))

    def reconstruct(self, images: Tensor, label: Tensor | None = None) -> Tensor:
        """Reconstructions of images, (B, C, H, W) in 0..1.

        Args:
            images: as for a call.
            label: class indices of the poses to decode, (B,); None takes the most active capsule.
        """
        if self.decoder is None:
            raise ValueError("this network was trained without a decoder: it cannot redraw its input")
        return self.decoder(self(images), label)

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """Predicted class index of each image, (B,), or where images show two classes both of them, (B, 2)."""
        with self.evaluating():
            return most_active(self(images).activation, self.spec.labels_per_image)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Context in which the network is in eval mode; afterwards it is in the mode that it had."""
        was_training = self.training
        try:
            self.eval()
            yield
        finally:
            self.train(was_training)


def most_active(activation: Tensor, count: int) -> Tensor:
    """Class of the most active capsule, (B,); or classes of the ``count`` most active, in falling order, (B, count)."""
    return activation.argmax(-1) if count == 1 else activation.topk(count).indices


def _create_decoder(kind: str, model: ImageModel) -> Decoder | None:
    """Decoder of a kind among ``DECODERS`` for the poses and images of a model."""
    if kind == "none":
        return None
    if kind == "deconv":
        return DeconvDecoder(model.pose_dim, model.image_size, model.in_channels)
    return DenseDecoder(model.num_classes, model.pose_dim, model.image_size, model.in_channels)
