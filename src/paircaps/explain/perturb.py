"""What each dimension of a pose means: move it through its range, leave the others, and draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.checks import require_positive, require_shape
from paircaps.explain.reconstruct import require_decoder
from paircaps.explain.trace import chosen_classes
from paircaps.functional import Capsules
from paircaps.models.decoder import Decoder, pick
from paircaps.network import Network

STEPS = 11
_TAIL = 0.02
_FEW = 20
_AT_ONCE = 256


@dataclass(frozen=True)
class DimensionRanges:
    """How far the dimensions of a capsule's pose reach.

    Args:
        low: of each class, (J, K).
        high: of each class, (J, K).
    """

    low: Tensor
    high: Tensor

    def steps(self, label: Tensor, count: int) -> Tensor:
        """Values from low to high for a class an image, (B,) to (B, K, count)."""
        low, high = self.low[label].unsqueeze(-1), self.high[label].unsqueeze(-1)
        return low + (high - low) * torch.linspace(0, 1, count, device=low.device)


@torch.no_grad()
def pose_range(network: Network, images: Tensor) -> DimensionRanges:
    """The range in which all but the rarest poses of some images lie.

    Args:
        network: trained.
        images: many, (B, C, H, W), as the network takes them.

    Returns:
        of each class the 2 % and the 98 % quantile over the images it is the most active in; over all of them where
        those are fewer than 20.
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
    """One image redrawn with its pose changed, a dimension at a time.

    Args:
        images: as the network sees them, (B, C, H, W) in 0..1.
        label: the capsule whose pose it is, (B,).
        pose: as the network found it, (B, K).
        values: that each dimension was given, (B, K, S).
        drawings: (B, K, S, C, H, W) in 0..1.
        unchanged: drawings of the poses as they are, (B, C, H, W).
    """

    images: Tensor
    label: Tensor
    pose: Tensor
    values: Tensor
    drawings: Tensor
    unchanged: Tensor


@torch.no_grad()
def perturb(
    network: Network, images: Tensor, reach: DimensionRanges, label: Tensor | int | None = None, steps: int = STEPS
) -> Perturbation:
    """Sweep every dimension of a pose through its range.

    Args:
        network: trained, with a decoder.
        images: (B, C, H, W), as the network takes them.
        reach: how far to go; see :func:`pose_range`.
        label: whose pose, (B,), or one for all; None takes the most active capsule.
        steps: values of each dimension.
    """
    require_positive(steps=steps)
    with network.evaluating():
        return _perturb(network, images, reach, label, steps)


def _perturb(
    network: Network, images: Tensor, reach: DimensionRanges, label: Tensor | int | None, steps: int
) -> Perturbation:
    decoder = require_decoder(network)
    capsules = network(images)
    label = chosen_classes(capsules, label)
    pose = pick(capsules.pose, label)  # (B, K)
    values = reach.steps(label, steps)  # (B, K, S)
    K = pose.shape[-1]
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
    """Draw one image again and again with other poses of one capsule.

    Args:
        decoder: of the network.
        poses: of all its capsules, (1, J, K).
        label: the capsule, (1,).
        changed: its other poses, (N, K).

    Returns:
        (N, C, H, W) in 0..1.
    """
    require_shape("changed", changed, (len(changed), poses.shape[-1]), "poses of one capsule")
    many = poses.repeat(len(changed), 1, 1)
    many[:, int(label)] = changed
    return decoder.draw(many, label.expand(len(changed)))
