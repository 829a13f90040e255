"""Exported files beside the network they are of: the greatest difference of their outputs, and accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.images import as_float
from paircaps.data import Batch, ImageDataset, Loader
from paircaps.explain.sample_images import load_sample_images
from paircaps.export.formats import Run
from paircaps.export.graphs import Answers
from paircaps.losses import is_right, target_masks
from paircaps.network import Network, Preparation
from paircaps.training.datasets import own_dataset, require_fitting

LIMIT = 1e-4
"""Greatest difference of an output that is allowed, in relation to its size; see :func:`greatest_difference`."""

MOST_LOSS = 0.1
"""Percentage points of accuracy that 8-bit weights may cost."""

BATCHES = (1, 7)
"""Images of the first batches of a comparison; the others have ``_AT_ONCE``."""

_AT_ONCE = 64


def greatest_difference(ours: Tensor, original: Tensor) -> float:
    """Greatest difference of two outputs, divided by the greatest value of the original if that is above 1.

    Activations of cross entropy may be in the hundreds, and float32 has seven digits.

    Args:
        ours: output of an exported file.
        original: output of the network, of the same shape.
    """
    if ours.shape != original.shape:
        return float("inf")
    return float((ours - original).abs().max() / original.abs().max().clamp_min(1))


def outputs(run: Run, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Outputs of an exported file or of a network for many inputs, which it is given in batches of several sizes.

    Args:
        run: what is run.
        inputs: its inputs, (N, ...) each.
    """
    sizes = [*BATCHES, *[_AT_ONCE] * (len(inputs[0]) // _AT_ONCE + 1)]
    found: list[tuple[Tensor, ...]] = []
    with torch.no_grad():
        for first, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
            batch = [value[first : first + size] for value in inputs]
            if len(batch[0]):
                found.append(run(*batch))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def differences(ours: Sequence[Tensor], original: Sequence[Tensor], names: Sequence[str]) -> dict[str, float]:
    """Greatest difference of each output, by its name.

    Args:
        ours: outputs of an exported file.
        original: outputs of the network.
        names: their names.
    """
    return {name: greatest_difference(*both) for name, *both in zip(names, ours, original, strict=True)}


# --- images ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Samples:
    """Images that an exported file is compared on.

    Args:
        images: (N, C, H, W) in 0..1, of the size that graphs take.
        source: name of their dataset.
    """

    images: Tensor
    source: str


def load_samples(network: Network, folder: Path, count: int, root: Path | None = None) -> Samples:
    """Images of the run's own test set if that is on this machine, else glyphs.

    Args:
        network: the network.
        folder: where its run is.
        count: number of images.
        root: folder that is searched first for datasets.
    """
    found = load_sample_images(network, folder, count, root)
    return Samples(_of_graph(found.images, network.spec.preparation), found.source)


def _of_graph(images: Tensor, preparation: Preparation) -> Tensor:
    """Images as a graph takes them: those of the cropped size get back the edge that is cropped."""
    images = as_float(images)
    (height, width), crop = preparation.size, tuple(images.shape[-2:])
    if crop == preparation.size:
        return images
    top, left = (height - crop[0]) // 2, (width - crop[1]) // 2
    return F.pad(images, (left, width - crop[1] - left, top, height - crop[0] - top))


# --- accuracy --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """Accuracy of a network and of its export, in percent; mean IoU of segmentation networks.

    Args:
        metric: ``"accuracy"`` or ``"mean IoU"``.
        original: that of the network.
        exported: that of the export.
        images: number of images.
        source: name of their dataset.
    """

    metric: str
    original: float
    exported: float
    images: int
    source: str

    @property
    def loss(self) -> float:
        """Percentage points that the export has lost; below 0 if it is better."""
        return self.original - self.exported

    def __str__(self) -> str:
        return (
            f"{self.metric} {self.exported:.2f} %, of the original {self.original:.2f} %, on {self.images:,} test "
            f"images of {self.source}"
        )


def load_test_images(network: Network, folder: Path, root: Path | None = None) -> ImageDataset:
    """All test images of a run.

    Args:
        network: the network.
        folder: where its run is.
        root: folder that is searched first for datasets.

    Raises:
        PaircapsError: if they are not there, or do not fit.
    """
    dataset = own_dataset(folder, root=root)
    require_fitting(network, dataset)
    return dataset


def score(network: Network, dataset: ImageDataset, run: Run) -> Score:
    """Accuracy of a network and of its export, one view of each image.

    Args:
        network: the network.
        dataset: its test images.
        run: the exported file.
    """
    measure = _mean_iou if network.has_masks else _accuracy
    original, exported = measure(Answers(network), dataset, network), measure(run, dataset, network)
    metric = "mean IoU" if network.has_masks else "accuracy"
    return Score(metric, original, exported, len(dataset), dataset.info.name)


@torch.no_grad()
def _accuracy(run: Run, dataset: ImageDataset, network: Network) -> float:
    """Share of the images whose labels are the most active classes, in percent."""
    right = 0
    for batch in _batches(dataset):
        activation = run(_of_graph(batch.images, network.spec.preparation))[0]
        right += int(is_right(activation, batch.targets).sum())
    return 100 * right / len(dataset)


@torch.no_grad()
def _mean_iou(run: Run, dataset: ImageDataset, network: Network) -> float:
    """Mean over the classes of intersection over union of their pixels in all images, in percent."""
    both = either = torch.zeros(len(network.classes), dtype=torch.float64)
    for batch in _batches(dataset):
        found = run(_of_graph(batch.images, network.spec.preparation))[-1] > 0
        assert batch.mask_source is not None  # a dataset without masks was refused
        true = target_masks(batch.targets, batch.mask_source, len(network.classes)) > 0
        both = both + (found & true).sum((0, 2, 3))
        either = either + (found | true).sum((0, 2, 3))
    shown = either > 0
    return 100 * float((both[shown] / either[shown]).mean())


def _batches(dataset: ImageDataset) -> Iterable[Batch]:
    return Loader(dataset, 256, shuffle=False).epoch(0)
