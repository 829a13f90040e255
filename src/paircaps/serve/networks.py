"""Trained networks of a server, and their responses to requests."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal, TypeVar

import torch
from torch import Tensor

from paircaps._utils.colours import DIGITS, one_colour_each
from paircaps._utils.extras import require_extra
from paircaps.data.registry import dataset_metadata, source_metadata
from paircaps.errors import PaircapsError
from paircaps.explain.agreement import agreement_from_trace
from paircaps.explain.dimensions import Dimension, measure_dimensions
from paircaps.explain.kept_poses import kept_poses
from paircaps.explain.perturb import DimensionRanges, dimension_ranges, draw_poses
from paircaps.explain.sample_images import load_sample_images, load_upright_images
from paircaps.explain.trace import Trace, choose_classes, has_agreement, has_capsules, trace
from paircaps.functional import Capsules
from paircaps.model_files import load, read_metadata
from paircaps.models import count_parameters
from paircaps.models.decoder import pick
from paircaps.network import Network, most_active
from paircaps.pictures import Fit, FittedPicture, PictureSource
from paircaps.serve.schemas import (
    LARGEST_POSE_VALUE,
    AgreementMap,
    Drawing,
    MaskOverlay,
    ModelFacts,
    Opinion,
    PredictionResponse,
    Slider,
)

MAX_MEMORY = 36 << 20
"""Largest memory in bytes that a picture may take while it is decoded."""

_SAMPLE_IMAGES = 512
"""Images that the ranges of poses are measured on."""

Digits = Literal["handwritten", "printed"]

_DIGITS: dict[str, Digits] = {"mnist": "handwritten", "affnist": "handwritten", "glyphs": "printed"}
"""Kind of the digits, by the dataset that they are from."""

Result = TypeVar("Result")


class UnknownNameError(PaircapsError):
    """Request for a network or class that does not exist."""


@dataclass(frozen=True)
class ServedNetwork:
    """A network that answers requests.

    Args:
        name: name of the network in requests.
        network: the network, in eval mode.
        ranges: usual ranges of its pose dimensions.
        ranges_from: name of the images that these were measured on.
        sliders: what its pose dimensions stand for, if its files say so; None if that is to be measured.
        trained_on: name of the dataset that it was trained on; None if its files do not say.
    """

    name: str
    network: Network
    ranges: DimensionRanges
    ranges_from: str
    sliders: list[list[Slider]] | None
    trained_on: str | None

    def facts(self) -> ModelFacts:
        """Description of the network for the interface."""
        network, spec = self.network, self.network.spec
        height, width = spec.preparation.size
        return ModelFacts(
            name=self.name,
            model=spec.model,
            routing=spec.routing if has_capsules(network) else None,
            classes=list(network.classes),
            width=width,
            height=height,
            channels=network.model.in_channels,
            fit=network.fitting().fit,
            invert=network.fitting().invert,
            background=network.fitting().background,
            certainty=network.certainty_kind,
            trained_on=self.trained_on,
            digits=_digits_of(self.trained_on),
            labels_per_image=spec.labels_per_image,
            parameters=count_parameters(network.model),
            pose_dim=network.model.pose_dim,
            pose_low=self.ranges.low.tolist(),
            pose_high=self.ranges.high.tolist(),
            pose_range_of=self.ranges_from,
            sliders=self.sliders,
            draws=network.decoder is not None,
            agrees=has_agreement(network),
            segments=network.has_masks,
        )

    def index(self, class_name: str) -> int:
        """Index of a class.

        Raises:
            UnknownNameError: if the network has no such class.
        """
        if class_name not in self.network.classes:
            raise UnknownNameError(
                f"no class {_short(class_name)}: {self.name} knows {', '.join(self.network.classes)}"
            )
        return self.network.classes.index(class_name)

    def most_active_names(self, activation: Tensor) -> list[str]:
        """Names of the most active classes, from the activations (1, J) of one image."""
        chosen = most_active(activation, self.network.spec.labels_per_image).flatten().tolist()
        return [self.network.classes[index] for index in chosen]


class Networks:
    """All networks of a server; requests are computed one after the other, in one thread.

    Two cores are hardly faster with more threads, and every thread that has run PyTorch keeps some memory.

    Networks that were trained on handwritten digits come first, since people draw digits by hand.

    Args:
        folders: folders of trained networks, by name.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1)
        self._folders = dict(sorted(folders.items(), key=lambda item: not _reads_handwriting(item[1])))
        self._loaded: dict[str, ServedNetwork] = {}
        for name, folder in self._folders.items():
            network = load(folder)
            self._loaded[name] = ServedNetwork(name, network, *_poses(network, folder), _trained_on(folder))
        self.facts = [loaded.facts() for loaded in self._loaded.values()]

    def __getitem__(self, name: str | None) -> ServedNetwork:
        """Network of a name; the first one if the name is None or empty."""
        if name is None or name == "":
            return next(iter(self._loaded.values()))
        if name not in self._loaded:
            raise UnknownNameError(f"no model {_short(name)}: here are {', '.join(self._loaded)}")
        return self._loaded[name]

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Call a function in the thread of the networks, after all earlier calls."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, *arguments)

    def measure_sliders(self) -> None:
        """Begin to measure the sliders of all networks, in the thread of the networks and between requests.

        One step of the measurement follows the other only after all requests that came meanwhile.
        """
        self._worker.submit(self._take_step, self._slider_steps())

    def _take_step(self, steps: Iterator[None]) -> None:
        """Take a step of a measurement, and queue the next one."""
        for _ in steps:
            self._worker.submit(self._take_step, steps)
            return

    def _slider_steps(self) -> Iterator[None]:
        """Measure the sliders of one network after the other; their facts change when each is done."""
        for place, (name, served) in enumerate(self._loaded.items()):
            if served.network.decoder is None or served.sliders is not None:
                continue
            samples = load_sample_images(served.network, self._folders[name], _SAMPLE_IMAGES)
            upright = load_upright_images(served.network, self._folders[name])
            measured = yield from measure_dimensions(served.network, samples.images, served.ranges, upright)
            sliders = _sliders(measured)
            self.facts[place] = self.facts[place].model_copy(update={"sliders": sliders})

    @torch.inference_mode()
    def predict(
        self,
        content: bytes,
        name: str | None,
        class_name: str | None,
        fit: Fit | None,
        invert: bool | None,
        compare: bool,
    ) -> PredictionResponse:
        """Predict the class of a picture.

        Args:
            content: content of the picture's file.
            name: name of the network; the first one if None.
            class_name: class to show pose, reconstruction and agreement of; the most active one if None.
            fit: how a picture of another aspect ratio is fitted; as in the network's training if None.
            invert: whether to exchange dark and light; as in the network's training if None.
            compare: whether to return the predictions of all other networks too.
        """
        served = self[name]
        label = None if not class_name else served.index(class_name)
        decoded = _DecodedPicture(PictureSource("the picture", lambda: content), fit, invert)
        response = _predict(served, decoded(served.network), label)
        if compare:
            others = [other for other in self._loaded.values() if other is not served]
            response.others = [_opinion(other, decoded(other.network)) for other in others]
        return response

    @torch.inference_mode()
    def draw(self, name: str, class_name: str, pose: list[float]) -> Drawing:
        """Draw a pose of a class capsule.

        Args:
            name: name of the network.
            class_name: class whose capsule has the pose.
            pose: values of all dimensions.
        """
        served = self[name]
        label = served.index(class_name)
        network = served.network
        if network.decoder is None:
            raise PaircapsError(f"{served.name} was trained without a decoder: it cannot draw")
        if len(pose) != network.model.pose_dim:
            raise PaircapsError(f"a pose of {served.name} is {network.model.pose_dim} numbers, got {len(pose)}")
        if max(map(abs, pose)) > LARGEST_POSE_VALUE:
            raise PaircapsError(
                f"numbers of a pose lie between -{LARGEST_POSE_VALUE:g} and {LARGEST_POSE_VALUE:g}, "
                f"got {max(pose, key=abs):g}"
            )
        poses = torch.zeros(1, network.model.num_classes, network.model.pose_dim)
        drawing = draw_poses(network.decoder, poses, torch.tensor([label]), torch.tensor([pose], dtype=torch.float32))
        return Drawing(picture=data_url(drawing[0]))


class _DecodedPicture:
    """A picture in the size and channels of several networks, decoded once for those that take the same."""

    def __init__(self, source: PictureSource, fit: Fit | None, invert: bool | None) -> None:
        self.source, self.invert = source, invert
        self.fit: Fit | None = fit
        self._read: dict[object, FittedPicture] = {}

    def __call__(self, network: Network) -> FittedPicture:
        """Picture for a network."""
        wanted = network.spec.preparation
        key = wanted.size, wanted.channels, network.fitting(self.fit, self.invert)
        if key not in self._read:
            self._read[key] = network.read_picture(self.source, fit=self.fit, invert=self.invert, max_memory=MAX_MEMORY)
        return self._read[key]


def _predict(served: ServedNetwork, picture: FittedPicture, label: int | None) -> PredictionResponse:
    """Prediction of one network for one picture."""
    network, images = served.network, picture.image.unsqueeze(0)
    traced = trace(network, images) if has_agreement(network) else None
    capsules, masks = network.capsules_and_masks(images) if traced is None else (traced.capsules, None)
    chosen = choose_classes(capsules, label)
    certainty = network.certainty(capsules.activation)
    return PredictionResponse(
        model=served.name,
        classes=served.most_active_names(capsules.activation),
        activations=_by_class(network, capsules.activation),
        certainty=_by_class(network, certainty),
        looked_at=network.classes[int(chosen)],
        pose=pick(capsules.pose, chosen)[0].tolist(),
        seen=data_url(network.prepare(images)[0]),
        inverted=picture.inverted,
        reconstruction=_reconstruction(network, capsules, chosen),
        agreement=None if traced is None else _agreement(network, traced, chosen),
        masks=None if masks is None else _overlay(served, capsules, masks),
        others=[],
    )


def _opinion(other: ServedNetwork, picture: FittedPicture) -> Opinion:
    """Prediction of another network, in short."""
    activation = other.network(picture.image.unsqueeze(0)).activation
    names = other.most_active_names(activation)
    certainty = other.network.certainty(activation)[0, other.index(names[0])].item()
    return Opinion(model=other.name, classes=names, certainty=certainty)


def _by_class(network: Network, values: Tensor) -> dict[str, float]:
    """Values (1, J) by the name of their class."""
    return dict(zip(network.classes, values[0].tolist(), strict=True))


def _reconstruction(network: Network, capsules: Capsules, chosen: Tensor) -> str | None:
    """Reconstruction from the chosen capsule as a ``data:`` URL; None without a decoder."""
    return None if network.decoder is None else data_url(network.decoder(capsules, chosen)[0])


def _agreement(network: Network, traced: Trace, chosen: Tensor) -> AgreementMap:
    """Agreement map in pixels of the whole picture, of which the network may see only the central crop."""
    agreement = agreement_from_trace(traced, chosen, pairs=0)
    sides = zip(network.spec.preparation.size, network.spec.preparation.crop, strict=True)
    above, before = ((size - crop) // 2 for size, crop in sides)
    rows, columns = (agreement.rows + above).tolist(), (agreement.columns + before).tolist()
    return AgreementMap(shares=agreement.map[0].tolist(), rows=rows, columns=columns)


def _overlay(served: ServedNetwork, capsules: Capsules, masks: Tensor) -> MaskOverlay:
    """Masks (1, J, H, W) of the most active classes in colours, transparent where there is none."""
    names = served.most_active_names(capsules.activation)
    there = (masks[0, [served.index(name) for name in names]] > 0).float()  # (D, H, W)
    coloured = torch.cat([one_colour_each(there[None, :, None])[0], there.amax(0, keepdim=True)])
    colours = [DIGITS[number % len(DIGITS)] for number in range(len(names))]
    return MaskOverlay(classes=names, colours=colours, picture=data_url(coloured))


def data_url(image: Tensor) -> str:
    """Encode an image (C, H, W) in 0..1 as a PNG file in a ``data:`` URL: grey, colour, or colour and opacity."""
    require_extra("drawing pictures", "PIL")
    from PIL import Image

    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    pixels = pixels if len(pixels) in (1, 3, 4) else pixels[:1]  # of channels that are not colours, the first
    file = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).squeeze(-1).numpy()).save(file, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _poses(network: Network, folder: Path) -> tuple[DimensionRanges, str, list[list[Slider]] | None]:
    """Ranges of pose dimensions, the images that they are from, and sliders: kept with a network, or ranges alone."""
    kept = kept_poses(network, folder)
    if kept is not None:
        return kept.ranges, kept.source, None if kept.dimensions is None else _sliders(kept.dimensions)
    samples = load_sample_images(network, folder, _SAMPLE_IMAGES)
    return dimension_ranges(network, samples.images), samples.source, None


def _sliders(measured: list[list[Dimension]]) -> list[list[Slider]]:
    """Measured dimensions as the interface has them."""
    return [
        [Slider(dimension=each.index, change=each.change, follows=each.follows, r2=each.r2) for each in dimensions]
        for dimensions in measured
    ]


def _reads_handwriting(folder: Path) -> bool:
    """True if a network was trained on single handwritten digits."""
    return _digits_of(_trained_on(folder)) == "handwritten" and read_metadata(folder).get("labels_per_image") == 1


def _digits_of(dataset: str | None) -> Digits | None:
    """Kind of the digits of a dataset, by the dataset that it is made from; None if it has others or none."""
    metadata = None if dataset is None else dataset_metadata(dataset)
    return None if metadata is None else _DIGITS.get(source_metadata(metadata).name)


def _trained_on(folder: Path) -> str | None:
    """Name of the dataset that a network was trained on; None if its files do not say."""
    dataset = read_metadata(folder).get("trained", {}).get("dataset")
    return None if dataset is None else PurePath(str(dataset)).name  # of a folder, not where it was


def _short(text: str) -> str:
    """Quote a text of a request, cut to 80 characters."""
    return repr(text if len(text) <= 80 else text[:80] + "…")
