"""How well poses follow the world, as numbers.

*Equivariance* is how well the true pose of a thing can be read off the pose of its capsule, by a linear map.
*Invariance* is how little its activation changes meanwhile. The paper leaves both to be measured.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from paircaps._utils.checks import require_positive
from paircaps.data.synthetic.poses import POSE, UPRIGHT
from paircaps.errors import PaircapsError
from paircaps.explain.warps import Upright, Warped, in_one_warp, in_random_poses, random_poses, sizes_of
from paircaps.models.decoder import pick
from paircaps.network import Network

IMAGES = 4000
REDUCED = 16
"""Pose dimensions of a capsule of the paper; longer features are read off in so many principal components too."""

_WARPS_EACH = 20
_SPREAD_IMAGES = 100
_CURVE_IMAGES = 300
_AT_ONCE = 256


@dataclass(frozen=True)
class Equivariance:
    """What was measured of one network.

    Args:
        name: for people.
        pose_dim: numbers that a pose has.
        r2: of a linear read-out from the pose of the right capsule, by what is read: x, y, rotation, scale, shear. One
            is perfect, zero no better than their mean.
        r2_reduced: the same from the first 16 principal components, where a pose is longer; else None.
        spread: deviation of the right capsule's activation while its image is warped, as a part of the distance between
            right and wrong capsules of upright images; None where those do not differ.
        upright: accuracy on images that are not warped.
        still: how many those are.
        warped: accuracy on images in random poses.
        curves: accuracy against the size of one warp alone, by its kind: pairs of size and accuracy.
    """

    name: str
    pose_dim: int
    r2: dict[str, float]
    r2_reduced: dict[str, float] | None
    spread: float | None
    upright: float
    still: int
    warped: float
    curves: dict[str, list[tuple[float, float]]]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def measure(
    name: str, network: Network, fit_on: Upright, test_on: Upright, images: int = IMAGES, seed: int = 0
) -> Equivariance:
    """Measure one network.

    Args:
        name: of the network, for people.
        network: trained.
        fit_on: images to fit the read-out on.
        test_on: other images, to test it on and for all else.
        images: warped ones to fit it on, and as many to test it on.
        seed: of the poses.
    """
    require_positive(images=images)
    fit = _poses_and_hits(network, in_random_poses(fit_on, images, seed, "equivariance fit"))
    test = _poses_and_hits(network, in_random_poses(test_on, images, seed, "equivariance test"))
    K = fit.pose.shape[-1]
    reduced = _by_name(read_out(_reduced(fit, fit), _reduced(test, fit))) if K > REDUCED else None
    curves = {kind: _curve(network, test_on, kind, min(images, _CURVE_IMAGES)) for kind in POSE}
    return Equivariance(
        name,
        K,
        _by_name(read_out(fit, test)),
        reduced,
        _spread(network, test_on, seed),
        dict(curves["rotation"])[0.0],
        min(images, _CURVE_IMAGES, len(test_on)),
        test.hits.double().mean().item(),
        curves,
    )


@dataclass(frozen=True)
class Poses:
    """What a network says of warped images.

    Args:
        labels: (N,).
        pose: of the right capsule, (N, K) in float64.
        truth: x, y, rotation, scale and shear, (N, 5) in float64.
        hits: whether the right capsule was the most active one, (N,).
    """

    labels: Tensor
    pose: Tensor
    truth: Tensor
    hits: Tensor


def _poses_and_hits(network: Network, warped: Warped) -> Poses:
    poses, hits = [], []
    for pose, activation, labels in _run(network, warped):
        poses.append(pose)
        hits.append(activation.argmax(dim=-1) == labels)
    return Poses(warped.labels, torch.cat(poses).double(), warped.pose.double(), torch.cat(hits))


@torch.no_grad()
def _run(network: Network, warped: Warped) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Pose of the right capsule, activations of all, and labels, a few images at a time."""
    device, result = next(network.parameters()).device, []
    with network.evaluating():
        for images, labels in zip(warped.images.split(_AT_ONCE), warped.labels.split(_AT_ONCE), strict=True):
            capsules = network(images.to(device))
            result.append((pick(capsules.pose, labels.to(device)).cpu(), capsules.activation.cpu(), labels))
    return result


def read_out(fit: Poses, test: Poses) -> Tensor:
    """R² of linear read-outs, one a class, for each part of the true pose, (5,).

    Every class has a read-out of its own, since nothing ties the coordinates of one capsule to those of another.
    """
    missed, whole = torch.zeros(len(POSE)).double(), torch.zeros(len(POSE)).double()
    for label in test.labels.unique():
        known, asked = fit.labels == label, test.labels == label
        if not bool(known.any()):
            continue
        mean = fit.truth[known].mean(0)
        weight = torch.linalg.lstsq(_with_one(fit.pose[known]), fit.truth[known] - mean, driver="gelsd").solution
        guess = _with_one(test.pose[asked]) @ weight + mean
        missed += (guess - test.truth[asked]).square().sum(0)
        whole += (mean - test.truth[asked]).square().sum(0)
    if not bool((whole > 0).all()):
        raise PaircapsError("the images to fit a read-out on and those to test it on have no class in common")
    return 1 - missed / whole


def _with_one(pose: Tensor) -> Tensor:
    return torch.cat([pose, torch.ones_like(pose[:, :1])], -1)


def _reduced(poses: Poses, by: Poses) -> Poses:
    """Poses in the principal components of others."""
    mean = by.pose.mean(0)
    _, _, directions = torch.linalg.svd(by.pose - mean, full_matrices=False)
    return Poses(poses.labels, (poses.pose - mean) @ directions[:REDUCED].T, poses.truth, poses.hits)


def _by_name(values: Tensor) -> dict[str, float]:
    return dict(zip(POSE, values.tolist(), strict=True))


def _curve(network: Network, base: Upright, kind: str, count: int) -> list[tuple[float, float]]:
    points = []
    for size in sizes_of(kind, base.size):
        hits = _poses_and_hits(network, in_one_warp(base, count, kind, size)).hits
        points.append((float(size), hits.double().mean().item()))
    return points


def _spread(network: Network, base: Upright, seed: int) -> float | None:
    """Deviation under warps over the distance between right and wrong."""
    count = min(_SPREAD_IMAGES, len(base))
    rows = torch.arange(count)
    still = base.warped(rows, torch.tensor(UPRIGHT).repeat(count, 1))
    right, wrong = _right_and_wrong(network, still)
    distance = (right - wrong).mean().item()
    if distance <= 0:
        return None
    poses = random_poses(count * _WARPS_EACH, base.size, seed, "equivariance spread")
    moved, _ = _right_and_wrong(network, base.warped(rows.repeat_interleave(_WARPS_EACH), poses))
    return moved.unflatten(0, (count, _WARPS_EACH)).std(dim=1).mean().item() / distance


def _right_and_wrong(network: Network, warped: Warped) -> tuple[Tensor, Tensor]:
    """Activation of the right capsule and the mean of all others, (N,) each."""
    activation = torch.cat([activation for _, activation, _ in _run(network, warped)]).double()
    right = activation.gather(-1, warped.labels.unsqueeze(-1)).squeeze(-1)
    return right, (activation.sum(-1) - right) / max(1, activation.shape[-1] - 1)
