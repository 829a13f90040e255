"""Trained networks of a server, and their responses to requests."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from paircaps._utils.colours import DIGITS, one_colour_each
from paircaps._utils.extras import require_extra
from paircaps.errors import PaircapsError
from paircaps.explain.agreement import agreement_from_trace
from paircaps.explain.perturb import draw_poses
from paircaps.explain.trace import Trace, choose_classes, has_agreement, trace
from paircaps.functional import Capsules
from paircaps.models.decoder import pick
from paircaps.network import Network
from paircaps.pictures import Fit, FittedPicture, PictureSource
from paircaps.serve.schemas import (
    LARGEST_POSE_VALUE,
    AgreementMap,
    Drawing,
    MaskOverlay,
    ModelFacts,
    Opinion,
    PredictionResponse,
)
from paircaps.serve.served import ServedNetwork, UnknownNameError, handwriting_first, load_served, map_positions, short

MAX_MEMORY = 36 << 20
"""Largest memory in bytes that a picture may take while it is decoded."""

Result = TypeVar("Result")


class Networks:
    """All networks of a server; requests are computed one after the other, in one thread.

    Two cores are hardly faster with more threads, and every thread that has run PyTorch keeps some memory.

    Networks that were trained on handwritten digits come first, since people draw digits by hand.

    Args:
        folders: folders of trained networks, by name.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1)
        self._loaded = {name: load_served(name, folder) for name, folder in handwriting_first(folders).items()}
        self.facts = [ModelFacts.model_validate(loaded.facts()) for loaded in self._loaded.values()]

    def __getitem__(self, name: str | None) -> ServedNetwork:
        """Network of a name; the first one if the name is None or empty."""
        if name is None or name == "":
            return next(iter(self._loaded.values()))
        if name not in self._loaded:
            raise UnknownNameError(f"no model {short(name)}: here are {', '.join(self._loaded)}")
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
        for place, served in enumerate(self._loaded.values()):
            sliders = yield from served.measured_sliders()
            if sliders is not None:
                self.facts[place] = ModelFacts.model_validate(served.facts() | {"sliders": sliders})

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
    """Agreement map of a class."""
    shares = agreement_from_trace(traced, chosen, pairs=0).map[0].tolist()
    return AgreementMap(shares=shares, **map_positions(network, traced))


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
