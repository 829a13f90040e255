"""Measures of equivariance and invariance of a trained network.

*Equivariance*: how well a linear map predicts the true pose of an object from the pose of its capsule.
*Invariance*: how little the activation of the capsule changes with the pose. The paper measures neither.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from paircaps._utils.checks import require_positive
from paircaps.data.synthetic.poses import POSE, UPRIGHT
from paircaps.errors import PaircapsError
from paircaps.explain.focus import focus
from paircaps.explain.trace import has_agreement
from paircaps.explain.warps import (
    RANGES,
    SHIFT,
    UprightImages,
    WarpedImages,
    random_poses,
    warp_one_way,
    warp_randomly,
    warp_sizes,
)
from paircaps.models.decoder import pick
from paircaps.network import Network

IMAGES = 4000
"""Warped images to fit the linear maps on, and as many to test them on, unless another number is given."""

REDUCED = 16
"""Pose dimensions of a capsule in the paper. Of longer features, so many principal components are measured too."""

_SPREAD_IMAGES = 100  # images whose activations are followed while they are warped
_WARPS_EACH = 20  # warps of each of these images
_FOCUS_IMAGES = 200  # images whose agreement is looked at
_CURVE_IMAGES = 300  # images at each point of an accuracy curve
_AT_ONCE = 256  # images in a batch


@dataclass(frozen=True)
class Equivariance:
    """Measured equivariance and invariance of one network.

    Args:
        name: name of the network, shown in tables.
        pose_dim: dimensions of a pose.
        r2: R² of a linear map from the pose of the right capsule to the true x, y, rotation, scale and shear, by name;
            1 is perfect, 0 is no better than their mean.
        r2_reduced: the same from the first 16 principal components of longer poses; None where a pose is not longer.
        spread: standard deviation of the right capsule's activation while its image is warped, divided by the distance
            between right and wrong capsules of upright images; None where these do not differ.
        upright: accuracy on images that are not warped, 0 to 1.
        still: number of these images.
        warped: accuracy on images in random poses, 0 to 1.
        curves: accuracy against the size of one kind of warp alone, by kind: pairs of size and accuracy.
        focus: share of the agreement that lies on the object's pixels, over the share of the picture that they cover;
            None for a network without capsules, or with a routing that does not report contributions.
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
    focus: float | None = None

    def as_dict(self) -> dict[str, object]:
        """All values by name, for JSON."""
        return asdict(self)


def measure_equivariance(
    name: str, network: Network, fit_on: UprightImages, test_on: UprightImages, images: int = IMAGES, seed: int = 0
) -> Equivariance:
    """Measure equivariance, invariance and accuracy of one network on warped images.

    Args:
        name: name of the network, shown in tables.
        network: a trained network.
        fit_on: images to fit the linear maps on.
        test_on: other images, for the test of these maps and all other measures.
        images: number of warped images to fit on, and as many to test on.
        seed: of the random poses.
    """
    require_positive(images=images)
    # equivariance: linear maps from pose to true pose, fitted on one set and tested on the other
    fit = find_poses(network, warp_randomly(fit_on, images, seed, "equivariance fit"))
    test = find_poses(network, warp_randomly(test_on, images, seed, "equivariance test"))
    K = fit.pose.shape[-1]
    reduced = _by_name(read_out(_reduced(fit, fit), _reduced(test, fit))) if K > REDUCED else None
    # invariance: accuracy against the size of each warp
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
        _focus(network, test_on, seed),
    )


@dataclass(frozen=True)
class Poses:
    """Poses that a network found in warped images, beside the true ones.

    Args:
        labels: classes, (N,).
        pose: pose of the right class capsule, (N, K) in float64.
        truth: true x, y, rotation, scale and shear, (N, 5) in float64.
        hits: whether the right capsule was the most active one, (N,).
    """

    labels: Tensor
    pose: Tensor
    truth: Tensor
    hits: Tensor


def find_poses(network: Network, warped: WarpedImages) -> Poses:
    """Run a network on warped images.

    Args:
        network: a trained network.
        warped: images in known poses.
    """
    poses, hits = [], []
    for pose, activation, labels in _run(network, warped):
        poses.append(pose)
        hits.append(activation.argmax(dim=-1) == labels)
    return Poses(warped.labels, torch.cat(poses).double(), warped.pose.double(), torch.cat(hits))


@torch.no_grad()
def _run(network: Network, warped: WarpedImages) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Pose of the right capsule (B, K), activations of all classes (B, J) and labels (B,) of each batch."""
    device, result = next(network.parameters()).device, []
    with network.evaluating():
        for images, labels in zip(warped.images.split(_AT_ONCE), warped.labels.split(_AT_ONCE), strict=True):
            capsules = network(images.to(device))
            result.append((pick(capsules.pose, labels.to(device)).cpu(), capsules.activation.cpu(), labels))
    return result


def read_out(fit: Poses, test: Poses) -> Tensor:
    """R² of linear maps from found to true poses, for each of the five parts of the true pose, (5,).

    Every class has a map of its own, since nothing ties the coordinates of one capsule to those of another.

    Args:
        fit: poses that the maps are fitted on.
        test: poses that they are tested on.
    """
    residual, total = torch.zeros(len(POSE)).double(), torch.zeros(len(POSE)).double()
    for label in test.labels.unique():
        fitted, tested = fit.labels == label, test.labels == label
        if not bool(fitted.any()):
            continue
        mean = fit.truth[fitted].mean(0)
        weight = torch.linalg.lstsq(_with_constant(fit.pose[fitted]), fit.truth[fitted] - mean, driver="gelsd").solution
        guess = _with_constant(test.pose[tested]) @ weight + mean
        residual += (guess - test.truth[tested]).square().sum(0)
        total += (mean - test.truth[tested]).square().sum(0)
    if not bool((total > 0).all()):
        raise PaircapsError("the images to fit a read-out on and those to test it on have no class in common")
    return 1 - residual / total


def _with_constant(pose: Tensor) -> Tensor:
    """Append a column of ones, for the constant of a linear map."""
    return torch.cat([pose, torch.ones_like(pose[:, :1])], -1)


def _reduced(poses: Poses, by: Poses) -> Poses:
    """Project poses on the first principal components of the poses of ``by``."""
    mean = by.pose.mean(0)
    _, _, directions = torch.linalg.svd(by.pose - mean, full_matrices=False)
    return Poses(poses.labels, (poses.pose - mean) @ directions[:REDUCED].T, poses.truth, poses.hits)


def _by_name(values: Tensor) -> dict[str, float]:
    return dict(zip(POSE, values.tolist(), strict=True))


def _curve(network: Network, base: UprightImages, kind: str, count: int) -> list[tuple[float, float]]:
    """Accuracy against the size of one kind of warp: pairs of size and accuracy."""
    points = []
    for size in warp_sizes(kind, base.size):
        hits = find_poses(network, warp_one_way(base, count, kind, size)).hits
        points.append((float(size), hits.double().mean().item()))
    return points


def _spread(network: Network, base: UprightImages, seed: int) -> float | None:
    """Deviation of activations under warps, divided by the distance between right and wrong capsules."""
    # the distance, on upright images
    count = min(_SPREAD_IMAGES, len(base))
    rows = torch.arange(count)
    still = base.warped(rows, torch.tensor(UPRIGHT).repeat(count, 1))
    right, wrong = _right_and_wrong(network, still)
    distance = (right - wrong).mean().item()
    if distance <= 0:
        return None
    # the deviation, over the warps of each image
    poses = random_poses(count * _WARPS_EACH, base.size, seed, "equivariance spread")
    moved, _ = _right_and_wrong(network, base.warped(rows.repeat_interleave(_WARPS_EACH), poses))
    return moved.unflatten(0, (count, _WARPS_EACH)).std(dim=1).mean().item() / distance


def _focus(network: Network, base: UprightImages, seed: int) -> float | None:
    """Focus of the agreement on images that are shifted, each to a place of its own."""
    if not has_agreement(network):
        return None
    count = min(_FOCUS_IMAGES, len(base))
    poses = torch.tensor(UPRIGHT).repeat(count, 1)
    poses[:, :2] = random_poses(count, base.size, seed, "focus")[:, :2]
    shifted = base.warped(torch.arange(count), poses)
    device = next(network.parameters()).device
    return focus(network, shifted.images.to(device), shifted.labels.to(device))


def _right_and_wrong(network: Network, warped: WarpedImages) -> tuple[Tensor, Tensor]:
    """Activation of the right capsule, and the mean activation of all others, (N,) each."""
    activation = torch.cat([activation for _, activation, _ in _run(network, warped)]).double()
    right = activation.gather(-1, warped.labels.unsqueeze(-1)).squeeze(-1)
    return right, (activation.sum(-1) - right) / max(1, activation.shape[-1] - 1)


def as_markdown(result: dict[str, Any]) -> str:
    """Format results of several networks as a table, with the meaning of its columns and the machine."""
    lines = [
        f"| network | pose | {' | '.join(f'R² {kind}' for kind in POSE)} | spread | upright | warped | focus |",
        "|---|---|" + "---|" * (len(POSE) + 4),
    ]
    for row in result["networks"]:
        spread = "–" if row["spread"] is None else f"{row['spread']:.2f}"
        focused = "–" if row["focus"] is None else f"{row['focus']:.2f}"
        ends = f"{spread} | {100 * row['upright']:.1f} % | {100 * row['warped']:.1f} % | {focused}"
        lines.append(f"| {row['name']} | {row['pose_dim']} | {_values(row['r2'])} | {ends} |")
        if row["r2_reduced"] is not None:
            lines.append(f"| the same, reduced | {REDUCED} | {_values(row['r2_reduced'])} | | | | |")
    lines += ["", _legend(result)]
    return "\n".join(lines) + "\n"


def _values(r2: dict[str, float]) -> str:
    return " | ".join(f"{r2[kind]:.2f}" for kind in POSE)


def _legend(result: dict[str, Any]) -> str:
    data, most, still = result["data"], RANGES, result["networks"][0]["still"]
    return " ".join(
        [
            "*R²* of a linear read-out of the true pose from that of the right capsule, one a class, fitted on",
            f"{result['images']:,} warped images of {data['name']} ({data['fit']}) and tested on as many others",
            f"({data['test']}); 1 is perfect, 0 no better than the mean. *pose*: the numbers it is read from;",
            f"where they are more than {REDUCED}, their {REDUCED} principal components too. *spread*: deviation of the",
            "right capsule's activation while its image is warped, as a part of the distance between right and wrong",
            f"ones. *upright*: accuracy on {still} images as they are, *warped*: on those warped for the test.",
            "*focus*: share of the agreement on the object's pixels over the share of the picture they cover. Warps:",
            f"{most.rotation:g} degrees, a scale of {most.scale[0]:g}",
            f"to {most.scale[1]:g}, a shear of {most.shear:g}, a shift of {SHIFT:g} of the side, each to either side.",
            f"Seed {result['seed']}. {result['machine']}.",
        ]
    )
