"""A trained network with what the page shows of it: its facts, the ranges of its pose, and its sliders.

Both the server and the page without a server are made from it; it needs no package of the extra ``serve``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

from torch import Tensor

from paircaps.data.registry import dataset_metadata, source_metadata
from paircaps.errors import PaircapsError
from paircaps.explain.dimensions import Dimension, measure_dimensions
from paircaps.explain.kept_poses import kept_poses
from paircaps.explain.perturb import DimensionRanges, dimension_ranges
from paircaps.explain.sample_images import load_sample_images, load_upright_images
from paircaps.explain.trace import Trace, has_agreement, has_capsules
from paircaps.model_files import load, read_metadata
from paircaps.models import count_parameters
from paircaps.network import Network, most_active

SAMPLE_IMAGES = 512
"""Images that the ranges of poses are measured on."""

SliderFacts = list[list[dict[str, Any]]]
"""For each class the dimensions of its pose, as ``/api/models`` has them."""

Digits = Literal["handwritten", "printed"]

_DIGITS: dict[str, Digits] = {"mnist": "handwritten", "affnist": "handwritten", "glyphs": "printed"}
"""Kind of the digits, by the dataset that they are from."""


class UnknownNameError(PaircapsError):
    """Request for a network or class that does not exist."""


@dataclass(frozen=True)
class ServedNetwork:
    """A network that answers on the page.

    Args:
        name: name of the network in requests.
        folder: where its files are.
        network: the network, in eval mode.
        ranges: usual ranges of its pose dimensions.
        ranges_from: name of the images that these were measured on.
        sliders: what its pose dimensions stand for, if its files say so; None if that is to be measured.
        trained_on: name of the dataset that it was trained on; None if its files do not say.
    """

    name: str
    folder: Path
    network: Network
    ranges: DimensionRanges
    ranges_from: str
    sliders: SliderFacts | None
    trained_on: str | None

    def facts(self) -> dict[str, Any]:
        """Description of the network, as JSON has it: the fields of ``/api/models``."""
        network, spec = self.network, self.network.spec
        height, width = spec.preparation.size
        return {
            "name": self.name,
            "model": spec.model,
            "routing": spec.routing if has_capsules(network) else None,
            "classes": list(network.classes),
            "width": width,
            "height": height,
            "channels": network.model.in_channels,
            **asdict(network.fitting()),
            "certainty": network.certainty_kind,
            "trained_on": self.trained_on,
            "digits": digits_of(self.trained_on),
            "labels_per_image": spec.labels_per_image,
            "parameters": count_parameters(network.model),
            "pose_dim": network.model.pose_dim,
            "pose_low": self.ranges.low.tolist(),
            "pose_high": self.ranges.high.tolist(),
            "pose_range_of": self.ranges_from,
            "sliders": self.sliders,
            "draws": network.decoder is not None,
            "agrees": has_agreement(network),
            "segments": network.has_masks,
        }

    def measured_sliders(self) -> Generator[None, None, SliderFacts | None]:
        """Measure the sliders, if that is not done, in steps between which something else may be done.

        Returns:
            the sliders; None without a decoder.
        """
        if self.network.decoder is None or self.sliders is not None:
            return self.sliders
        images = load_sample_images(self.network, self.folder, SAMPLE_IMAGES).images
        upright = load_upright_images(self.network, self.folder)
        measured = yield from measure_dimensions(self.network, images, self.ranges, upright)
        return _sliders(measured)

    def index(self, class_name: str) -> int:
        """Index of a class.

        Raises:
            UnknownNameError: if the network has no such class.
        """
        if class_name not in self.network.classes:
            raise UnknownNameError(f"no class {short(class_name)}: {self.name} knows {', '.join(self.network.classes)}")
        return self.network.classes.index(class_name)

    def most_active_names(self, activation: Tensor) -> list[str]:
        """Names of the most active classes, from the activations (1, J) of one image."""
        chosen = most_active(activation, self.network.spec.labels_per_image).flatten().tolist()
        return [self.network.classes[index] for index in chosen]


def load_served(name: str, folder: Path) -> ServedNetwork:
    """Load a trained network and measure the ranges of its pose.

    Args:
        name: name of the network on the page.
        folder: where it is.
    """
    network = load(folder)
    return ServedNetwork(name, folder, network, *_poses(network, folder), _trained_on(folder))


def handwriting_first(folders: Mapping[str, Path]) -> dict[str, Path]:
    """Folders by name, in their order, but networks of single handwritten digits first: people draw digits by hand.

    Args:
        folders: folders of trained networks, by name.
    """
    return dict(sorted(folders.items(), key=lambda item: not _reads_handwriting(item[1])))


def map_positions(network: Network, traced: Trace) -> dict[str, list[float]]:
    """Centres of the rows and columns of an agreement map, in pixels of the whole picture.

    Of that picture the network may see only the central crop.

    Args:
        network: the network.
        traced: trace of any images through it.
    """
    sides = zip(network.spec.preparation.size, network.spec.preparation.crop, strict=True)
    above, before = ((size - crop) // 2 for size, crop in sides)
    x, y = traced.on_grid(traced.centres.T).unbind(0)
    return {"rows": (y[:, 0, 0] + above).tolist(), "columns": (x[0, :, 0] + before).tolist()}


def digits_of(dataset: str | None) -> Digits | None:
    """Kind of the digits of a dataset, by the dataset that it is made from; None if it has others or none."""
    metadata = None if dataset is None else dataset_metadata(dataset)
    return None if metadata is None else _DIGITS.get(source_metadata(metadata).name)


def short(text: str) -> str:
    """Quote a text of a request, cut to 80 characters."""
    return repr(text if len(text) <= 80 else text[:80] + "…")


def _poses(network: Network, folder: Path) -> tuple[DimensionRanges, str, SliderFacts | None]:
    """Ranges of pose dimensions, the images that they are from, and sliders: kept with a network, or ranges alone."""
    kept = kept_poses(network, folder)
    if kept is not None:
        return kept.ranges, kept.source, None if kept.dimensions is None else _sliders(kept.dimensions)
    samples = load_sample_images(network, folder, SAMPLE_IMAGES)
    return dimension_ranges(network, samples.images), samples.source, None


def _sliders(measured: list[list[Dimension]]) -> SliderFacts:
    """Measured dimensions as the page has them."""
    return [
        [{"dimension": each.index, "change": each.change, "follows": each.follows, "r2": each.r2} for each in of]
        for of in measured
    ]


def _reads_handwriting(folder: Path) -> bool:
    """True if a network was trained on single handwritten digits."""
    return digits_of(_trained_on(folder)) == "handwritten" and read_metadata(folder).get("labels_per_image") == 1


def _trained_on(folder: Path) -> str | None:
    """Name of the dataset that a network was trained on; None if its files do not say."""
    dataset = read_metadata(folder).get("trained", {}).get("dataset")
    return None if dataset is None else PurePath(str(dataset)).name  # of a folder, not where it was
