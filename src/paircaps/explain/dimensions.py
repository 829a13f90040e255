"""What each dimension of a pose stands for: how much it changes the reconstruction, and which warp it follows.

The page of ``paircaps serve`` orders its sliders by the first and names them by the second.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps.data.synthetic.poses import POSE
from paircaps.explain.equivariance import Poses, find_poses, read_out
from paircaps.explain.perturb import DimensionRanges, draw_poses
from paircaps.explain.reconstruct import require_decoder
from paircaps.explain.warps import UprightImages, WarpedImages, warp_randomly
from paircaps.functional import Capsules
from paircaps.models.decoder import Decoder
from paircaps.network import Network

MOST = 16
"""Dimensions that are measured of a longer pose: those with the widest ranges."""

CLEAR_R2 = 0.3
"""R² from which on a dimension is said to follow a part of the true pose."""

CLEAR_LEAD = 2.0
"""How many times the R² of any other part of the true pose that has to be."""

WARPED_EACH = 64
"""Warped images of each class that R² is measured on, about."""

_FEW = 20  # a class with fewer warped images gets no names
_LOOKED_THROUGH = 256  # images among which those to draw are chosen
_DRAWN_EACH = 3  # images of each class that are drawn
_STEPS = 3  # values of each dimension: both ends of its range, and the middle
_AT_ONCE = 32  # images in a step of the measurement


@dataclass(frozen=True)
class Dimension:
    """One dimension of the pose of one class.

    Args:
        index: its place in the pose, from 0.
        change: mean absolute change of a pixel of the reconstruction, 0 to 1, while it moves through its range.
        follows: part of the true pose that it follows, one of x, y, rotation, scale and shear; None if none clearly.
        r2: R² of a linear read-out of that part from this dimension alone; None if it follows none.
    """

    index: int
    change: float
    follows: str | None
    r2: float | None


Measurement = Generator[None, None, list[list[Dimension]]]
"""A measurement in steps, between which something else may be done; it returns the dimensions of each class."""


def measure_dimensions(
    network: Network, images: Tensor, ranges: DimensionRanges, upright: UprightImages | None
) -> Measurement:
    """Measure the dimensions of the pose of every class, in steps of a fraction of a second.

    A dimension follows a part of the true pose if the read-out of the equivariance measure, given this dimension alone,
    has an R² of at least :data:`CLEAR_R2` on images in random poses, and :data:`CLEAR_LEAD` times that of any other
    part. It is the R² on the images of the fit, since one weight fitted to some 60 images cannot fit chance. Shifts
    have to be seen in the reconstruction too: what follows x must move its middle more to the side than up or down.

    Args:
        network: a trained network with a decoder.
        images: images as the network takes them, (B, C, H, W).
        ranges: usual range of every dimension; see :func:`paircaps.explain.dimension_ranges`.
        upright: images to warp, with the classes of the network; None if there are none, so that nothing is followed.

    Returns:
        for each class, the dimensions in falling order of their change; of more than 16, those with the widest ranges.
    """
    decoder = require_decoder(network)
    capsules = yield from _capsules(network, images[:_LOOKED_THROUGH])
    poses = None if upright is None else (yield from _warped_poses(network, upright))
    measured = []
    for label in range(network.model.num_classes):
        # the images in which this class is most active are drawn with each dimension at several values
        chosen = _widest(ranges, label)
        change, shift = torch.zeros(len(chosen)), torch.zeros(len(chosen), 2)
        best = capsules.activation[:, label].topk(min(_DRAWN_EACH, len(capsules.activation))).indices.tolist()
        for image in best:
            drawings, unchanged = _drawings(decoder, capsules.pose[[image]], label, chosen, ranges)
            change += (drawings - unchanged).abs().mean(dim=(1, 2, 3, 4)) / len(best)
            shift += _shift(drawings) / len(best)
            yield
        # the read-out of each of these dimensions alone
        r2 = _r2(poses, label, chosen)
        dimensions = [_dimension(*each) for each in zip(chosen, change, shift, r2, strict=True)]
        measured.append(sorted(dimensions, key=lambda dimension: -dimension.change))
        yield
    return measured


def _dimension(index: int, change: Tensor, shift: Tensor, r2: Tensor) -> Dimension:
    """A dimension from its measures: change (), shift of the drawing to the side and down (2,), and R² (5,)."""
    first, second = r2.topk(2).values.tolist()
    follows = POSE[int(r2.argmax())]
    across, down = shift.tolist()
    seen = {"x": across > down, "y": down > across}.get(follows, True)
    clear = first >= CLEAR_R2 and first >= CLEAR_LEAD * second and seen
    return Dimension(index, change.item(), follows if clear else None, first if clear else None)


def _widest(ranges: DimensionRanges, label: int) -> list[int]:
    """Indices of the dimensions of a class with the widest ranges, at most 16."""
    width = ranges.high[label] - ranges.low[label]
    return width.topk(min(MOST, len(width))).indices.tolist()


@torch.no_grad()
def _step(network: Network, images: Tensor) -> Capsules:
    with network.evaluating():
        return network(images)


def _capsules(network: Network, images: Tensor) -> Generator[None, None, Capsules]:
    """Capsules of the classes of many images, a step for each batch."""
    parts = []
    for few in images.split(_AT_ONCE):
        parts.append(_step(network, few))
        yield
    return Capsules(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _warped_poses(network: Network, upright: UprightImages) -> Generator[None, None, Poses]:
    """Poses that the network finds in images in random poses, a step for each batch."""
    warped = warp_randomly(upright, WARPED_EACH * network.model.num_classes, 0, "dimensions")
    parts = []
    for rows in torch.arange(len(warped.labels)).split(_AT_ONCE):
        parts.append(find_poses(network, WarpedImages(warped.images[rows], warped.labels[rows], warped.pose[rows])))
        yield
    return Poses(*(torch.cat([getattr(part, name) for part in parts]) for name in ("labels", "pose", "truth", "hits")))


@torch.no_grad()
def _drawings(
    decoder: Decoder, poses: Tensor, label: int, chosen: list[int], ranges: DimensionRanges
) -> tuple[Tensor, Tensor]:
    """Reconstructions with each chosen dimension at each value, (D, S, C, H, W), and the unchanged one, (C, H, W)."""
    classes = torch.tensor([label])
    changed = poses[0, label].repeat(len(chosen), _STEPS, 1)  # (D, S, K)
    changed[torch.arange(len(chosen)), :, chosen] = ranges.steps(classes, _STEPS)[0, chosen]
    every = torch.cat([changed.flatten(0, 1), poses[0, [label]]])
    drawings = draw_poses(decoder, poses, classes, every)
    return drawings[:-1].unflatten(0, (len(chosen), _STEPS)), drawings[-1]


def _shift(drawings: Tensor) -> Tensor:
    """Pixels that the middle of the light moves to the side and down between first and last drawing, (D, 2)."""
    light = drawings.mean(dim=2)  # (D, S, H, W)
    total = light.sum(dim=(-2, -1)).clamp_min(1e-6)
    across = (light.sum(dim=-2) @ torch.arange(light.shape[-1]).to(light)) / total
    down = (light.sum(dim=-1) @ torch.arange(light.shape[-2]).to(light)) / total
    middle = torch.stack([across, down], dim=-1)  # (D, S, 2)
    return (middle[:, -1] - middle[:, 0]).abs()


def _r2(poses: Poses | None, label: int, chosen: list[int]) -> Tensor:
    """R² of the parts of the true pose from each of the chosen dimensions alone, (D, 5); zeros if unknown."""
    own = torch.zeros(0, dtype=torch.bool) if poses is None else poses.labels == label
    if poses is None or int(own.sum()) < _FEW:
        return torch.zeros(len(chosen), len(POSE))
    alone = [Poses(poses.labels[own], poses.pose[own][:, [k]], poses.truth[own], poses.hits[own]) for k in chosen]
    return torch.stack([read_out(one, one) for one in alone])
