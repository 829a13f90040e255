"""Centripetal loss, of HitNet (Deliège, Cioppa and Van Droogenbroeck 2018)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from paircaps._utils.checks import require_choice, require_tensor, require_within
from paircaps._utils.labels import require_classes
from paircaps._utils.precision import in_full_precision
from paircaps.functional import REDUCTIONS
from paircaps.losses.base import ClassLoss, Outputs, present_classes, reduced
from paircaps.losses.registry import register_loss

MIDDLE = 0.5
"""Every coordinate of the middle of the unit cube, which the label's capsule should hit."""


@in_full_precision
def centre_distance(pose: Tensor) -> Tensor:
    """Euclidean distance of poses in the unit cube from its middle, (0.5, …): (..., K) to (...), from 0 to √K / 2.

    Args:
        pose: poses in 0..1, (..., K).
    """
    return torch.linalg.vector_norm(pose - MIDDLE, dim=-1)


@in_full_precision
def centripetal_loss(
    pose: Tensor,
    target: Tensor,
    reduction: str = "mean",
    *,
    hit_margin: float = 0.1,
    miss_margin: float = 0.9,
    absent_weight: float = 0.5,
) -> Tensor:
    """Centripetal loss: the label's capsule must hit the middle of the unit cube, all others must miss it (HitNet).

        L = Σ_j T_j ½ max(0, d_j − m_hit)² + λ (1 − T_j) max(0, m_miss − d_j)²,  d_j = ‖pose_j − (0.5, …)‖

    The two zones around the middle, the squares and a weight of the misses are those of HitNet. Its constants were not
    at hand when this was written: 0.1, 0.9 and 0.5 are those of the margin loss, which it takes after.

    >>> pose = torch.tensor([[[0.5, 0.5], [0.5, 1.0]]])  # one image: a hit, and a capsule at distance 0.5
    >>> centripetal_loss(pose, torch.tensor([0]))  # 0.5 (0.9 − 0.5)²
    tensor(0.0800)

    Args:
        pose: poses of the classes in the unit cube, (..., J, K).
        target: class indices, (...), or which classes are present, T as 0 and 1, (..., J).
        reduction: ``"mean"`` averages over images, ``"sum"`` adds them up, ``"none"`` gives each image's, (...).
        hit_margin: m_hit, the distance up to which a capsule has hit.
        miss_margin: m_miss, the distance from which on a capsule has missed.
        absent_weight: λ, the weight of absent classes.

    Returns:
        the loss, a number, or (...) without a reduction.

    Raises:
        ValueError: if the target has another shape, or a class index that does not exist.
    """
    require_tensor("pose", pose, "(..., classes, pose_dim)", 2)
    require_choice("reduction", reduction, REDUCTIONS)
    distance = centre_distance(pose)
    present = require_classes(target, distance)
    hit = (distance - hit_margin).clamp_min(0).square() / 2
    miss = (miss_margin - distance).clamp_min(0).square()
    return reduced((present * hit + absent_weight * (1 - present) * miss).sum(-1), reduction)


class Centripetal(ClassLoss):
    """Centripetal loss on the poses of the classes; for networks such as ``hitnet``, whose poses lie in the unit cube.

    Args:
        hit_margin: distance from the middle up to which a capsule has hit.
        miss_margin: distance from which on a capsule has missed.
        absent_weight: weight of absent classes.
    """

    certainty: ClassVar[Literal["softmax", "activation"]] = "activation"
    needs_unit_cube = True

    def __init__(self, hit_margin: float = 0.1, miss_margin: float = 0.9, absent_weight: float = 0.5) -> None:
        require_within("hit_margin", hit_margin, 0, 1e6)
        require_within("miss_margin", miss_margin, 0, 1e6)
        require_within("absent_weight", absent_weight, 0, 1e6)
        if hit_margin > miss_margin:
            raise ValueError(f"hit_margin must be at most miss_margin, {miss_margin}, got {hit_margin}")
        self.margins = {"hit_margin": hit_margin, "miss_margin": miss_margin, "absent_weight": absent_weight}

    def __call__(self, outputs: Outputs, labels: Tensor, progress: Tensor) -> Tensor:
        """The loss of a batch, summed over its images."""
        pose, activation = outputs.capsules.pose, outputs.capsules.activation
        return centripetal_loss(pose, present_classes(labels, activation), "sum", **self.margins)


register_loss("centripetal", Centripetal)
