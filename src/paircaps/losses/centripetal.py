"""Centripetal loss, of HitNet (Deliège, Cioppa and Van Droogenbroeck 2018)."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from paircaps._utils.checks import require_bool, require_choice, require_tensor, require_within
from paircaps._utils.labels import require_classes
from paircaps._utils.precision import in_full_precision
from paircaps.functional import REDUCTIONS, centre_distance
from paircaps.losses.base import ClassLoss, Outputs, present_classes, reduced
from paircaps.losses.registry import register_loss


@in_full_precision
def centripetal_loss(
    pose: Tensor,
    target: Tensor,
    reduction: str = "mean",
    *,
    hit_margin: float = 0.1,
    miss_margin: float = 0.9,
    absent_weight: float = 0.5,
    step_width: float = 0.1,
    step_height: float = 0.2,
    ghost: bool = False,
) -> Tensor:
    """Centripetal loss: the label's capsule must hit the middle of the unit cube, all others must miss it (HitNet).

        L = Σ_j T_j ℓ(d_j − m_hit) + λ (1 − T_j) ℓ(m_miss − d_j),  d_j = ‖pose_j − (0.5, …)‖

    ℓ is zero up to zero and rises in straight pieces from there, each h wide and steeper by v than the one before it.
    The two zones and the steps are those of HitNet. The constants are those of a public implementation of it; the paper
    was not at hand.

    >>> import torch
    >>> pose = torch.tensor([[[0.5, 0.5], [0.5, 1.0]]])  # one image: a hit, and a capsule at distance 0.5
    >>> centripetal_loss(pose, torch.tensor([0]))  # 0.5 · 0.1 · (0.2 + 0.4 + 0.6 + 0.8)
    tensor(0.1000)

    Args:
        pose: poses of the classes in the unit cube, (..., J, K).
        target: class indices, (...), or which classes are present, T as 0 and 1, (..., J).
        reduction: ``"mean"`` averages over images, ``"sum"`` adds them up, ``"none"`` gives each image's, (...).
        hit_margin: m_hit, the distance up to which a capsule has hit.
        miss_margin: m_miss, the distance from which on a capsule has missed.
        absent_weight: λ, the weight of absent classes.
        step_width: h, the width of a piece of ℓ.
        step_height: v, by which each piece of ℓ is steeper than the one before.
        ghost: whether each image has a ghost capsule, which costs nothing: that of the absent class nearest to the
            middle, which may be what a wrongly labelled image shows.

    Returns:
        the loss, a number, or (...) without a reduction.

    Raises:
        ValueError: if the target has another shape, or a class index that does not exist.
    """
    require_tensor("pose", pose, "(..., classes, pose_dim)", 2)
    require_choice("reduction", reduction, REDUCTIONS)
    distance = centre_distance(pose)
    present = require_classes(target, distance)
    hits = present * _in_steps(distance - hit_margin, step_width, step_height)
    misses = (1 - present) * _in_steps(miss_margin - distance, step_width, step_height)
    spared = misses.max(-1).values if ghost else 0  # the nearest of the absent has the largest loss
    return reduced(hits.sum(-1) + absent_weight * (misses.sum(-1) - spared), reduction)


def _in_steps(excess: Tensor, width: float, height: float) -> Tensor:
    """ℓ of the centripetal loss: zero up to zero, then straight pieces whose slopes are v, 2 v, 3 v and so on."""
    excess = excess.clamp_min(0)
    below = (excess / width).floor()  # pieces that are passed
    return height * (below + 1) * (excess - width * below / 2)


class Centripetal(ClassLoss):
    """Centripetal loss on the poses of the classes; for networks such as ``hitnet``, whose poses lie in the unit cube.

    Args:
        hit_margin: distance from the middle up to which a capsule has hit.
        miss_margin: distance from which on a capsule has missed.
        absent_weight: weight of absent classes.
        step_width: width of the steps in which the slope of the loss grows.
        step_height: by how much the slope grows with each.
        ghost: whether the absent class nearest to the middle costs nothing.
    """

    certainty: ClassVar[Literal["softmax", "activation"]] = "activation"
    needs_unit_cube = True

    def __init__(
        self,
        hit_margin: float = 0.1,
        miss_margin: float = 0.9,
        absent_weight: float = 0.5,
        step_width: float = 0.1,
        step_height: float = 0.2,
        ghost: bool = False,
    ) -> None:
        require_within("hit_margin", hit_margin, 0, 1e6)
        require_within("miss_margin", miss_margin, 0, 1e6)
        require_within("absent_weight", absent_weight, 0, 1e6)
        require_within("step_width", step_width, 1e-6, 1e6)
        require_within("step_height", step_height, 0, 1e6)
        require_bool(ghost=ghost)
        if hit_margin > miss_margin:
            raise ValueError(f"hit_margin must be at most miss_margin, {miss_margin}, got {hit_margin}")
        margins = {"hit_margin": hit_margin, "miss_margin": miss_margin, "absent_weight": absent_weight}
        self.options = {**margins, "step_width": step_width, "step_height": step_height, "ghost": ghost}

    def __call__(self, outputs: Outputs, labels: Tensor, progress: Tensor) -> Tensor:
        """The loss of a batch, summed over its images."""
        pose, activation = outputs.capsules.pose, outputs.capsules.activation
        return centripetal_loss(pose, present_classes(labels, activation), "sum", **self.options)


register_loss("centripetal", Centripetal)
