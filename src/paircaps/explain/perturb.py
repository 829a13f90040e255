"""Reconstructions with one pose dimension changed at a time, which show what each dimension stands for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.checks import require_positive, require_shape
from paircaps.explain.reconstruct import require_decoder
from paircaps.explain.trace import choose_classes
from paircaps.functional import Capsules
from paircaps.models.decoder import Decoder, pick
from paircaps.network import Network

STEPS = 11
"""Values of each dimension unless another number is given."""

_TAIL = 0.02  # part of the poses left out at either end of a range
_FEW = 20  # a class with fewer images takes its range from all images
_AT_ONCE = 256  # images in a batch


@dataclass(frozen=True)
class DimensionRanges:
    """Usual range of every pose dimension of every class capsule.

    Args:
        low: lower ends, (J, K).
        high: upper ends, (J, K).
    """

    low: Tensor
    high: Tensor

    def steps(self, label: Tensor, count: int) -> Tensor:
        """Evenly spaced values from low to high.

        Args:
            label: class of each image, (B,).
            count: number of values S.

        Returns:
            (B, K, S).
        """
        low, high = self.low[label].unsqueeze(-1), self.high[label].unsqueeze(-1)
        return low + (high - low) * torch.linspace(0, 1, count, device=low.device)


@torch.no_grad()
def dimension_ranges(network: Network, images: Tensor) -> DimensionRanges:
    """Measure the range of every pose dimension on many images.

    Args:
        network: a trained network.
        images: images as the network takes them, (B, C, H, W).

    Returns:
        for each class the 2 % and 98 % quantiles over the images in which it is the most active one; over all images
        where those are fewer than 20.
    """
    with network.evaluating():
        parts = [network(few) for few in images.split(_AT_ONCE)]
    capsules = Capsules(*(torch.cat(part) for part in zip(*parts, strict=True)))
    winner = capsules.activation.argmax(dim=-1)
    low, high = [], []
    for label in range(capsules.pose.shape[1]):
        own = winner == label
        pose = capsules.pose[own, label] if int(own.sum()) >= _FEW else capsules.pose[:, label]
        ends = pose.float().quantile(torch.tensor([_TAIL, 1 - _TAIL], device=pose.device), dim=0).to(pose)
        low.append(ends[0])
        high.append(ends[1])
    return DimensionRanges(torch.stack(low), torch.stack(high))


@dataclass(frozen=True)
class Perturbation:
    """Reconstructions of images with one pose dimension changed at a time.

    Args:
        images: images as the network sees them, (B, C, H, W) in 0..1.
        label: class capsule whose pose is changed, (B,).
        pose: pose of that capsule as the network found it, (B, K).
        values: values that each dimension is given, (B, K, S).
        drawings: reconstruction for each dimension and value, (B, K, S, C, H, W) in 0..1.
        unchanged: reconstructions from the unchanged poses, (B, C, H, W) in 0..1.
    """

    images: Tensor
    label: Tensor
    pose: Tensor
    values: Tensor
    drawings: Tensor
    unchanged: Tensor


@torch.no_grad()
def perturb(
    network: Network, images: Tensor, ranges: DimensionRanges, label: Tensor | int | None = None, steps: int = STEPS
) -> Perturbation:
    """Move every pose dimension through its range and reconstruct the images.

    >>> from paircaps.network import Network, NetworkSpec, Preparation
    >>> preparation = Preparation(size=(28, 28), crop=(28, 28))
    >>> options = {"num_classes": 2}
    >>> classes = ("cat", "dog")
    >>> spec = NetworkSpec("resnet-caps-small", options, classes, preparation, "deconv")
    >>> network = Network(spec)  # or a trained one: paircaps.load(folder)
    >>> images = torch.rand(3, 1, 28, 28)
    >>> ranges = dimension_ranges(network, images)
    >>> perturb(network, images, ranges, steps=5).drawings.shape  # (B, K, S, C, H, W)
    torch.Size([3, 16, 5, 1, 28, 28])

    Args:
        network: a trained network with a decoder.
        images: images as the network takes them, (B, C, H, W).
        ranges: range of every dimension; see :func:`dimension_ranges`.
        label: class capsule of each image, (B,), or one for all; None takes the most active one.
        steps: number of values of each dimension.

    Raises:
        PaircapsError: if the network has no decoder.
    """
    require_positive(steps=steps)
    with network.evaluating():
        return _perturb(network, images, ranges, label, steps)


def _perturb(
    network: Network, images: Tensor, ranges: DimensionRanges, label: Tensor | int | None, steps: int
) -> Perturbation:
    decoder = require_decoder(network)
    capsules = network(images)
    label = choose_classes(capsules, label)
    pose = pick(capsules.pose, label)  # (B, K)
    values = ranges.steps(label, steps)  # (B, K, S)
    K = pose.shape[-1]
    # K × S copies of each pose; in copy (k, s), dimension k has its value s
    changed = pose[:, None, None].repeat(1, K, steps, 1)  # (B, K, S, K)
    changed[:, torch.arange(K), :, torch.arange(K)] = values.transpose(0, 1)
    drawings = [
        draw_poses(decoder, capsules.pose[[image]], label[[image]], changed[image].flatten(0, 1)).unflatten(
            0, (K, steps)
        )
        for image in range(len(images))
    ]
    unchanged = decoder(capsules, label)
    return Perturbation(network.prepare(images), label, pose, values, torch.stack(drawings), unchanged)


def draw_poses(decoder: Decoder, poses: Tensor, label: Tensor, changed: Tensor) -> Tensor:
    """Reconstruct one image with several poses of one capsule.

    Args:
        decoder: decoder of the network.
        poses: poses of all class capsules of the image, (1, J, K).
        label: class of the capsule, (1,).
        changed: poses to give that capsule, (N, K).

    Returns:
        reconstructions, (N, C, H, W) in 0..1.
    """
    require_shape("changed", changed, (len(changed), poses.shape[-1]), "poses of one capsule")
    many = poses.repeat(len(changed), 1, 1)
    many[:, int(label)] = changed
    return decoder.draw(many, label.expand(len(changed)))
