"""The networks that a page asks, each answering one question at a time."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from paircaps._utils.extras import require_extra
from paircaps.data.pictures import Fit
from paircaps.errors import PaircapsError
from paircaps.explain.agreement import agreement_from_trace
from paircaps.explain.perturb import DimensionRanges, dimension_ranges, draw_poses
from paircaps.explain.sample_images import load_sample_images
from paircaps.explain.trace import Trace, choose_classes, has_capsules, trace
from paircaps.functional import Capsules
from paircaps.model_files import load, read_facts
from paircaps.models import count_parameters
from paircaps.models.decoder import pick
from paircaps.network import Network, most_active
from paircaps.predict import PictureSource, read_picture
from paircaps.serve.schemas import AgreementMap, Drawing, ModelFacts, Opinion, PredictionResponse

MAX_MEMORY = 36 << 20
"""Bytes that a picture may take while it is unpacked."""

FARTHEST = 1e6
"""Largest number of a pose that is drawn."""

_SAMPLE_IMAGES = 512
"""Images that the ranges of poses are measured on."""

Answer = TypeVar("Answer")


class UnknownError(PaircapsError):
    """A question about something that is not there."""


@dataclass(frozen=True)
class Loaded:
    """A network.

    Args:
        name: to ask for it by.
        network: in eval mode.
        reach: how far its poses reach.
        reach_of: the images that this was seen on.
        certain: whether its activations were trained to lie between 0 and 1, by a margin loss.
    """

    name: str
    network: Network
    reach: DimensionRanges
    reach_of: str
    certain: bool

    def facts(self) -> ModelFacts:
        """For people and programs."""
        network, spec = self.network, self.network.spec
        height, width = spec.preparation.size
        routing = spec.arguments.get("routing", "fm")
        return ModelFacts(
            name=self.name,
            model=spec.model,
            routing=str(routing) if has_capsules(network) else None,
            classes=list(network.classes),
            width=width,
            height=height,
            channels=network.model.in_channels,
            labels_per_image=spec.labels_per_image,
            parameters=count_parameters(network.model),
            pose_dim=network.model.pose_dim,
            pose_low=self.reach.low.tolist(),
            pose_high=self.reach.high.tolist(),
            pose_range_of=self.reach_of,
            draws=network.decoder is not None,
            agrees=has_capsules(network),
        )

    def index(self, class_name: str) -> int:
        """Of a class."""
        if class_name not in self.network.classes:
            raise UnknownError(f"no class {_short(class_name)}: {self.name} knows {', '.join(self.network.classes)}")
        return self.network.classes.index(class_name)

    def names(self, activation: Tensor) -> list[str]:
        """Of the most active classes, (1, J)."""
        chosen = most_active(activation, self.network.spec.labels_per_image).flatten().tolist()
        return [self.network.classes[index] for index in chosen]

    def certainty(self, activation: Tensor) -> Tensor:
        """Activations between 0 and 1, (1, J)."""
        return activation.clamp(0, 1) if self.certain else activation.softmax(dim=-1)


class Networks:
    """All networks of a server. Questions are worked on one after the other, in one thread.

    Two cores are hardly faster with more, and every thread that ran PyTorch once keeps some memory.

    Args:
        folders: of trained networks, by name.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1)
        self._loaded: dict[str, Loaded] = {}
        for name, folder in folders.items():
            network = load(folder)
            samples = load_sample_images(network, folder, _SAMPLE_IMAGES)
            certain = network.model.bounded or _by_margin(folder)
            self._loaded[name] = Loaded(
                name, network, dimension_ranges(network, samples.images), samples.source, certain
            )
        self.facts = [loaded.facts() for loaded in self._loaded.values()]

    def __getitem__(self, name: str | None) -> Loaded:
        """One by name; without a name the first."""
        if name is None or name == "":
            return next(iter(self._loaded.values()))
        if name not in self._loaded:
            raise UnknownError(f"no model {_short(name)}: here are {', '.join(self._loaded)}")
        return self._loaded[name]

    async def work(self, question: Callable[..., Answer], *arguments: object) -> Answer:
        """Ask when it is one's turn."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, question, *arguments)

    @torch.inference_mode()
    def predict(
        self, content: bytes, name: str | None, class_name: str | None, fit: Fit, invert: bool, compare: bool
    ) -> PredictionResponse:
        """Say of a picture's file what it shows.

        Args:
            content: of the file.
            name: of the network; the first without it.
            class_name: to look at; the most active one without it.
            fit: how another aspect is dealt with.
            invert: exchange dark and light.
            compare: ask all other networks too.
        """
        asked = self[name]
        label = None if not class_name else asked.index(class_name)
        sight = _Sight(PictureSource("the picture", lambda: content), fit, invert)
        answer = _predict(asked, sight(asked.network), label)
        if compare:
            others = [loaded for loaded in self._loaded.values() if loaded is not asked]
            answer.others = [_opinion(other, sight(other.network)) for other in others]
        return answer

    @torch.inference_mode()
    def draw(self, name: str, class_name: str, pose: list[float]) -> Drawing:
        """Draw a pose of a class."""
        asked = self[name]
        label = asked.index(class_name)
        network = asked.network
        if network.decoder is None:
            raise PaircapsError(f"{asked.name} was trained without a decoder: it cannot draw")
        if len(pose) != network.model.pose_dim:
            raise PaircapsError(f"a pose of {asked.name} is {network.model.pose_dim} numbers, got {len(pose)}")
        if max(map(abs, pose)) > FARTHEST:
            raise PaircapsError(
                f"numbers of a pose lie between -{FARTHEST:g} and {FARTHEST:g}, got {max(pose, key=abs):g}"
            )
        poses = torch.zeros(1, network.model.num_classes, network.model.pose_dim)
        drawn = draw_poses(network.decoder, poses, torch.tensor([label]), torch.tensor([pose], dtype=torch.float32))
        return Drawing(picture=data_address(drawn[0]))


class _Sight:
    """A picture as networks see it, decoded once for all that take the same size and channels."""

    def __init__(self, source: PictureSource, fit: Fit, invert: bool) -> None:
        self.source, self.invert = source, invert
        self.fit: Fit = fit
        self._seen: dict[tuple[object, ...], Tensor] = {}

    def __call__(self, network: Network) -> Tensor:
        """(1, C, H, W) in bytes."""
        shape = (*network.spec.preparation.size, network.model.in_channels)
        if shape not in self._seen:
            image = read_picture(network, self.source, fit=self.fit, invert=self.invert, max_memory=MAX_MEMORY)
            self._seen[shape] = image.unsqueeze(0)
        return self._seen[shape]


def _predict(asked: Loaded, images: Tensor, label: int | None) -> PredictionResponse:
    network = asked.network
    seen = trace(network, images) if has_capsules(network) else None
    capsules = network(images) if seen is None else seen.capsules
    chosen = choose_classes(capsules, label)
    certainty = asked.certainty(capsules.activation)
    return PredictionResponse(
        model=asked.name,
        classes=asked.names(capsules.activation),
        activations=_by_class(network, capsules.activation),
        certainty=_by_class(network, certainty),
        looked_at=network.classes[int(chosen)],
        pose=pick(capsules.pose, chosen)[0].tolist(),
        seen=data_address(network.prepare(images)[0]),
        reconstruction=_redrawn(network, capsules, chosen),
        agreement=None if seen is None else _agreement(network, seen, chosen),
        others=[],
    )


def _opinion(other: Loaded, images: Tensor) -> Opinion:
    activation = other.network(images).activation
    names = other.names(activation)
    certainty = other.certainty(activation)[0, other.index(names[0])].item()
    return Opinion(model=other.name, classes=names, certainty=certainty)


def _by_class(network: Network, values: Tensor) -> dict[str, float]:
    return dict(zip(network.classes, values[0].tolist(), strict=True))


def _redrawn(network: Network, capsules: Capsules, chosen: Tensor) -> str | None:
    return None if network.decoder is None else data_address(network.decoder(capsules, chosen)[0])


def _agreement(network: Network, seen: Trace, chosen: Tensor) -> AgreementMap:
    """In pixels of a picture as it comes, of which the network may see but the middle."""
    found = agreement_from_trace(seen, chosen, pairs=0)
    sides = zip(network.spec.preparation.size, network.spec.preparation.crop, strict=True)
    above, before = ((size - crop) // 2 for size, crop in sides)
    rows, columns = (found.rows + above).tolist(), (found.columns + before).tolist()
    return AgreementMap(shares=found.map[0].tolist(), rows=rows, columns=columns)


def data_address(image: Tensor) -> str:
    """An image (C, H, W) in 0..1 as a PNG file in a ``data:`` address."""
    require_extra("drawing pictures", "PIL")
    from PIL import Image

    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    pixels = pixels if len(pixels) in (1, 3) else pixels[:1]  # of other channels, the first
    file = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).squeeze(-1).numpy()).save(file, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _by_margin(folder: Path) -> bool:
    """Whether a network was trained for a margin loss, as far as its files say."""
    loss = read_facts(folder).get("trained", {}).get("loss", {})
    return loss.get("name") == "margin"


def _short(text: str) -> str:
    """What somebody sent, quoted, but not by the page."""
    return repr(text if len(text) <= 80 else text[:80] + "…")
