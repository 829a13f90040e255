"""A network ready to classify images: a model with its classes, the preparation of images, and maybe a decoder."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_bool, require_choice, require_positive, require_sizes
from paircaps._utils.images import as_float, middle, standardise
from paircaps._utils.words import visible
from paircaps.errors import DataError
from paircaps.functional import Capsules
from paircaps.models import DeconvDecoder, DeepCapsDecoder, DenseDecoder, ImageModel, create_model
from paircaps.models.decoder import Decoder
from paircaps.models.registry import AUTO, resolve_routing
from paircaps.models.segment import MaskModel, Segmentation
from paircaps.pictures import (
    MAX_PIXELS,
    Fit,
    FittedPicture,
    Fitting,
    PictureSource,
    decode_fitted,
    find_pictures,
    fit_picture,
)

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture = str | PathLike[str] | bytes | Image | Tensor
    """A picture file or its content, a folder, an image of Pillow, or a tensor (C, H, W) or (B, C, H, W)."""

__all__ = [
    "Network",
    "NetworkSpec",
    "Prediction",
    "Preparation",
]

DECODERS = ("none", "deconv", "dense", "deepcaps")
CERTAINTIES = ("softmax", "activation")
_AT_ONCE = 64
"""Pictures that are classified in one batch."""


@dataclass(frozen=True)
class Preparation:
    """How a picture becomes the input of a model, in training and prediction alike; saved with the network.

    Args:
        size: (height, width) of an image as it comes; a picture of another size is resized to this.
        crop: (height, width) of the centre crop that the model gets.
        standardise: whether each image gets mean 0 and standard deviation 1; otherwise it stays in 0..1.
        channels: channels of an image, 1 for grey, 3 for colour.
        fitting: how a picture file is fitted to the size; None if that is not known, as of networks that were saved
            before it was recorded.
    """

    size: tuple[int, int]
    crop: tuple[int, int]
    standardise: bool = False
    channels: int = 1
    fitting: Fitting | None = field(default_factory=Fitting)

    def __post_init__(self) -> None:
        require_sizes("size", self.size, 2)
        require_sizes("crop", self.crop, 2)
        require_bool(standardise=self.standardise)
        require_positive(channels=self.channels)
        if self.crop[0] > self.size[0] or self.crop[1] > self.size[1]:
            raise ValueError(f"crop {self.crop} is larger than the image, {self.size}")
        if self.size[0] * self.size[1] > MAX_PIXELS:
            height, width = self.size
            raise ValueError(f"size {height}×{width} is too large, {MAX_PIXELS:,} pixels at most")


@dataclass(frozen=True)
class NetworkSpec:
    """Everything that is needed to build a network again, except its weights.

    Args:
        model: name of the model, one of ``list_models()``.
        arguments: arguments of ``create_model``, all of types that JSON has.
        classes: names of the classes.
        preparation: preparation of an image.
        decoder: ``"none"``, ``"deconv"`` (the paper's), ``"dense"`` (the first CapsNet's) or ``"deepcaps"`` (the
            class-independent one of DeepCaps).
        labels_per_image: number of classes that an image shows: 1, or 2 where digits overlap.
        certainty: how activations become certainties in 0..1: ``"activation"``, as they are, if a margin loss or the
            routing keeps them there, else ``"softmax"``. None: as the routing says.
    """

    model: str
    arguments: Mapping[str, object]
    classes: tuple[str, ...]
    preparation: Preparation
    decoder: str = "none"
    labels_per_image: int = 1
    certainty: str | None = None

    def __post_init__(self) -> None:
        require_choice("decoder", self.decoder, DECODERS)
        require_choice("certainty", self.certainty, (None, *CERTAINTIES))
        require_positive(labels_per_image=self.labels_per_image)
        if self.labels_per_image > len(self.classes):
            raise ValueError(
                f"labels_per_image must be at most the number of classes, {len(self.classes)}, got "
                f"{self.labels_per_image}"
            )
        if self.arguments.get("num_classes") != len(self.classes):
            raise ValueError(f"{len(self.classes)} classes for a model of {self.arguments.get('num_classes')}")
        if self.arguments.get("in_channels", self.preparation.channels) != self.preparation.channels:
            raise ValueError(
                f"images of {self.preparation.channels} channels for a model of {self.arguments['in_channels']}"
            )

    @property
    def routing(self) -> str:
        """Name of the routing, the one among the arguments or that which the model is published with."""
        return resolve_routing(self.model, str(self.arguments.get("routing", AUTO)))

    def as_dict(self) -> dict[str, object]:
        """All fields by name, for JSON; the arguments name the routing."""
        return {**asdict(self), "arguments": {**self.arguments, "routing": self.routing}}


@dataclass(frozen=True)
class Prediction:
    """Prediction of a network for one picture.

    Args:
        name: name of the picture's file; empty if it has none.
        labels: name of the most active class, or of the two most active ones if the network was trained for two; empty
            if the picture could not be read.
        certainties: certainty in 0..1 of each class by name.
        activations: activation of each class capsule by class name.
        error: why the picture could not be read; empty if it could.
        mask: class of each pixel, of a segmentation network: (H, W) in uint8, 0 where there is nothing, k where there
            is class k − 1, the most certain one where several overlap; None of other networks.
        masks: whether each pixel belongs to each of the classes of ``labels``, (D, H, W) of bool; None of others.
    """

    name: str = ""
    labels: tuple[str, ...] = ()
    certainties: Mapping[str, float] = field(default_factory=dict)
    activations: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    mask: Tensor | None = field(default=None, repr=False, compare=False)
    masks: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def label(self) -> str:
        """Name of the most active class."""
        return self.labels[0]

    @property
    def certainty(self) -> float:
        """Certainty of the most active class."""
        return self.certainties[self.label]

    @property
    def activation(self) -> float:
        """Activation of the most active class."""
        return self.activations[self.label]

    def __str__(self) -> str:
        return (
            " and ".join(f"{visible(label)} ({100 * self.certainties[label]:.1f} %)" for label in self.labels)
            or self.error
        )


class Network(nn.Module):
    """A network that classifies pictures: a model with its class names, its preparation of images and its decoder.

    :func:`paircaps.load` returns a trained one; built from a specification, as here, its weights are random.

    >>> preparation = Preparation(size=(28, 28), crop=(28, 28))
    >>> options = {"num_classes": 2}
    >>> spec = NetworkSpec("resnet-caps-small", options, ("cat", "dog"), preparation)
    >>> network = Network(spec)
    >>> prediction = network.predict(torch.rand(1, 28, 28))  # or a path
    >>> prediction.label in network.classes, 0 <= prediction.certainty <= 1
    (True, True)

    Args:
        spec: specification of the network.

    Attributes:
        model: the model, from images to capsules.
        decoder: the decoder, from capsules to images; None if the network has none.
        origin: content of the ``model.json`` that it was loaded with; empty for a network that was not.
    """

    model: ImageModel
    decoder: Decoder | None
    origin: Mapping[str, Any]

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        self._warned = False
        self.origin = {}
        self.model = create_model(spec.model, **dict(spec.arguments))  # pyright: ignore[reportArgumentType]
        if self.model.in_channels != spec.preparation.channels:
            raise ValueError(f"images of {spec.preparation.channels} channels for a model of {self.model.in_channels}")
        if not self.model.takes(*spec.preparation.crop):
            raise ValueError(
                f"images of {spec.preparation.crop} for a model of {self.model.image_size}: a network crops its images "
                "to the size of its model"
            )
        self.decoder = _create_decoder(spec.decoder, self.model)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, one for each capsule."""
        return self.spec.classes

    def forward(self, images: Tensor) -> Capsules:
        """Images (B, C, H, W) to capsules.

        Args:
            images: floats in 0..1 or uint8, of the model's size or of the size before the centre crop.

        Returns:
            Capsules of the classes, (B, J, K), (B, J, K) and (B, J).
        """
        return self.model(self.model_input(images))

    @property
    def has_masks(self) -> bool:
        """Whether the network is one of segmentation, which gives a mask for each class."""
        return isinstance(self.model, MaskModel)

    def segment(self, images: Tensor) -> Segmentation:
        """Masks of the classes, and their capsules.

        Args:
            images: as for a call.

        Raises:
            ValueError: if the network classifies only.
        """
        if not isinstance(self.model, MaskModel):
            raise ValueError(f"{self.spec.model} gives no masks; networks that do are caps-segment and unet-twin")
        return self.model.segment(self.model_input(images))

    def capsules_and_masks(self, images: Tensor) -> tuple[Capsules, Tensor | None]:
        """Capsules of the classes and, of a segmentation network, the logits of its masks, (B, J, H, W); else None.

        Args:
            images: as for a call.
        """
        return self.segment(images) if self.has_masks else (self(images), None)

    def model_input(self, images: Tensor) -> Tensor:
        """Input of the model: images prepared and, if the network does so, standardised.

        Args:
            images: as for a call.

        Returns:
            (B, C, H, W) of the model's size.
        """
        images = self.prepare(images)
        return standardise(images) if self.spec.preparation.standardise else images

    def prepare(self, images: Tensor) -> Tensor:
        """Images as floats in 0..1, cropped to the model's size: what a decoder should reconstruct.

        Args:
            images: as for a call.

        Returns:
            (B, C, H, W) of the model's size, in 0..1.
        """
        if not isinstance(images, Tensor):
            raise TypeError(f"images must be a tensor, got {type(images).__name__}; predict(...) takes picture files")
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
        """Reconstruct images from the poses of their capsules.

        Args:
            images: as for a call.
            label: class indices of the poses to decode, (B,); None takes the most active capsule.

        Returns:
            (B, C, H, W) in 0..1.

        Raises:
            ValueError: if the network has no decoder.
        """
        if self.decoder is None:
            raise ValueError("this network was trained without a decoder: it cannot redraw its input")
        return self.decoder(self(images), label)

    @torch.no_grad()
    def classify(self, images: Tensor) -> Tensor:
        """Predicted class index of each image, (B,), or where images show two classes both of them, (B, 2).

        Args:
            images: as for a call.
        """
        with self.evaluating():
            return most_active(self(images).activation, self.spec.labels_per_image)

    @property
    def certainty_kind(self) -> str:
        """How activations become certainties, ``"activation"``, each as it is, or ``"softmax"``, which adds up to 1."""
        return self.spec.certainty or ("activation" if self.model.bounded else "softmax")

    def certainty(self, activation: Tensor) -> Tensor:
        """Activations mapped to certainties in 0..1: as they are if they lie there, else by a softmax.

        Args:
            activation: activations of the classes, (..., J).

        Returns:
            (..., J) in 0..1.
        """
        return activation.clamp(0.0, 1.0) if self.certainty_kind == "activation" else activation.softmax(-1)

    def predict(
        self, pictures: Picture | Iterable[Picture], *, fit: Fit | None = None, invert: bool | None = None
    ) -> Prediction | list[Prediction]:
        """Classify pictures.

        A large JPEG file is decoded at a fraction of its size, an image of Pillow is not: the activations of the two
        may differ in the third digit.

        Args:
            pictures: one picture: the path of a file, its content as bytes, an image of Pillow, or a tensor (C, H, W).
                Or several: the path of a folder, a tensor (B, C, H, W), or a list of any of these. Tensors are as for a
                call.
            fit: how a picture of another aspect ratio is fitted; None as in the training.
            invert: whether to exchange dark and light; None as in the training.

        Returns:
            a prediction for one picture, a list of them for several.

        Raises:
            DataError: if a picture cannot be read.
        """
        if isinstance(pictures, str | PathLike | bytes | Tensor) or not isinstance(pictures, Iterable):
            one = _is_one(pictures)
            pictures = [pictures]
        else:
            one = False
        images = [image for picture in pictures for image in self._images(picture, fit, invert)]
        predictions = list(self._predictions(images))
        return predictions[0] if one else predictions

    def predict_sources(
        self, sources: Iterable[PictureSource], *, fit: Fit | None = None, invert: bool | None = None
    ) -> Iterator[Prediction]:
        """Classify picture files; one that cannot be read gives a prediction with an error, and the others go on.

        Args:
            sources: pictures to classify, read a few at a time.
            fit: as for :meth:`predict`.
            invert: as for :meth:`predict`.

        Returns:
            predictions in the order of the sources.
        """
        sources = iter(sources)
        while group := list(islice(sources, _AT_ONCE)):
            images: dict[int, tuple[str, Tensor]] = {}
            errors: dict[int, Prediction] = {}
            for number, source in enumerate(group):
                try:
                    images[number] = source.name, self.read_picture(source, fit=fit, invert=invert).image
                except DataError as error:
                    errors[number] = Prediction(source.name, error=str(error))
            good = dict(zip(images, self._predictions(list(images.values())), strict=True))
            yield from (good[number] if number in good else errors[number] for number in range(len(group)))

    def read_picture(
        self,
        source: PictureSource,
        *,
        fit: Fit | None = None,
        invert: bool | None = None,
        max_memory: int | None = None,
    ) -> FittedPicture:
        """Read a picture file as the training did.

        Args:
            source: picture to read.
            fit: as for :meth:`predict`.
            invert: as for :meth:`predict`.
            max_memory: most bytes that decoding may take; no bound without it.

        Returns:
            the picture as a tensor of the size that the network takes.

        Raises:
            DataError: if it cannot be read.
        """
        wanted = self.spec.preparation
        try:
            fitting = self.fitting(fit, invert)
            content = source.read()
            return decode_fitted(content, source.name, wanted.size, wanted.channels, fitting, max_memory=max_memory)
        except ValueError as error:
            raise DataError(f"{source.name}: {error}") from None

    def fitting(self, fit: Fit | None = None, invert: bool | None = None) -> Fitting:
        """How picture files are fitted: as in the training, unless arguments say otherwise.

        Where the training's way is not known, a warning says so, once, and what is assumed.

        Args:
            fit: as for :meth:`predict`.
            invert: as for :meth:`predict`.
        """
        known = self.spec.preparation.fitting
        if known is not None:
            return known.changed(fit, invert)
        # networks of grey digits were trained on light ones on dark ground
        digits = self.spec.preparation.channels == 1 and all(name.isdecimal() for name in self.classes)
        assumed = Fitting(invert="light" if digits else "never")
        if not self._warned and fit is None:
            self._warned = True
            warnings.warn(
                f"the files of {self.spec.model} with classes {', '.join(self.classes)[:60]} do not say how its "
                f"pictures were fitted: they are padded here{' and inverted if they are light' if digits else ''}; "
                "predict, explain and requests take another fit",
                stacklevel=2,
            )
        return assumed.changed(fit, invert)

    def _images(self, picture: Picture, fit: Fit | None, invert: bool | None) -> Iterator[tuple[str, Tensor]]:
        """Names and images, (C, H, W) each, of a picture, a folder or a batch."""
        if isinstance(picture, str | PathLike):
            for source in find_pictures([str(Path(picture))]):
                yield source.name, self.read_picture(source, fit=fit, invert=invert).image
        elif isinstance(picture, bytes):
            source = PictureSource("the picture", lambda: picture)
            yield "", self.read_picture(source, fit=fit, invert=invert).image
        elif isinstance(picture, Tensor):
            if picture.dim() not in (3, 4):
                raise ValueError(f"a tensor to predict is (C, H, W) or (B, C, H, W), got {tuple(picture.shape)}")
            yield from (("", image) for image in (picture if picture.dim() == 4 else picture[None]))
        elif hasattr(picture, "getbands"):  # an image of Pillow, which may not be installed
            wanted = self.spec.preparation
            name = str(getattr(picture, "filename", ""))
            try:
                fitted = fit_picture(picture, wanted.size, wanted.channels, self.fitting(fit, invert))
            except (OSError, ValueError, SyntaxError) as error:  # Pillow decodes it only now
                raise DataError(f"{name or 'the picture'}: damaged picture: {error}") from None
            yield name, fitted.image
        else:
            raise TypeError(
                "a picture to predict is a path, bytes, an image of Pillow or a tensor, or a list of them, got "
                f"{type(picture).__name__}"
            )

    @torch.no_grad()
    def _predictions(self, images: list[tuple[str, Tensor]]) -> Iterator[Prediction]:
        """Predictions of named images, a batch at a time."""
        device = next(self.parameters()).device
        for first in range(0, len(images), _AT_ONCE):
            few = images[first : first + _AT_ONCE]
            batch = torch.stack([as_float(image) for _, image in few]).to(device)  # bytes and floats may come together
            with self.evaluating():
                capsules, masks = self.capsules_and_masks(batch)
            activation = capsules.activation.float().cpu()
            masks = None if masks is None else masks.float().cpu()
            chosen = most_active(activation, self.spec.labels_per_image).reshape(len(few), -1)
            by_class = partial(zip, self.classes, strict=True)
            for number, ((name, _), labels, values, certain) in enumerate(
                zip(few, chosen.tolist(), activation.tolist(), self.certainty(activation).tolist(), strict=True)
            ):
                named = tuple(self.classes[label] for label in labels)
                of_pixels = (None, None) if masks is None else (mask_index(masks[number]), masks[number, labels] > 0)
                yield Prediction(name, named, dict(by_class(certain)), dict(by_class(values)), "", *of_pixels)

    def save_pretrained(self, folder: Path | str) -> Path:
        """Write the network to a folder, with a model card; see :func:`paircaps.hub.save_pretrained`."""
        return _hub().save_pretrained(self, folder)

    @classmethod
    def from_pretrained(cls, name: Path | str, **options: Any) -> Network:
        """Load a network from a folder or the Hugging Face Hub; see :func:`paircaps.hub.from_pretrained`."""
        return _hub().from_pretrained(name, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the network with its model card to the Hub; see :func:`paircaps.hub.push_to_hub`."""
        return _hub().push_to_hub(self, repo_id, **options)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Context in which the network is in eval mode; afterwards it is in the mode that it had."""
        was_training = self.training
        try:
            self.eval()
            yield
        finally:
            self.train(was_training)


def _hub() -> Any:
    """The module of the methods above, which stands on this one: it is asked for when they are called."""
    return import_module("paircaps.hub")


def mask_index(masks: Tensor) -> Tensor:
    """Class of each pixel from the logits of the masks: 0 for none, k for class k − 1, the most certain if several are.

    Args:
        masks: logits, (J, H, W).

    Returns:
        (H, W) in uint8.
    """
    certain, best = masks.max(0)
    return torch.where(certain > 0, best + 1, 0).to(torch.uint8)


def most_active(activation: Tensor, count: int) -> Tensor:
    """Class of the most active capsule, (B,); or classes of the ``count`` most active, in falling order, (B, count)."""
    return activation.argmax(-1) if count == 1 else activation.topk(count).indices


def _is_one(picture: Picture) -> bool:
    """True for a picture that gives one prediction; a folder or a batch gives a list."""
    if isinstance(picture, Tensor):
        return picture.dim() == 3
    return not isinstance(picture, str | PathLike) or not Path(picture).expanduser().is_dir()


def _create_decoder(kind: str, model: ImageModel) -> Decoder | None:
    """Decoder of a kind among ``DECODERS`` for the poses and images of a model."""
    if kind == "none":
        return None
    if kind == "deconv":
        return DeconvDecoder(model.pose_dim, model.image_size, model.in_channels)
    if kind == "deepcaps":
        return DeepCapsDecoder(model.pose_dim, model.image_size, model.in_channels)
    return DenseDecoder(model.num_classes, model.pose_dim, model.image_size, model.in_channels)
