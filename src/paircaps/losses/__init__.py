"""The training objective, and the class losses: one per file, and their registry."""

from __future__ import annotations

from paircaps.losses.base import ClassLoss, MaskPair, Outputs, present_classes
from paircaps.losses.centripetal import Centripetal, centripetal_loss
from paircaps.losses.cross_entropy import CrossEntropy
from paircaps.losses.margin import Margin
from paircaps.losses.mask import MASK_BRIGHTNESS as MASK_BRIGHTNESS
from paircaps.losses.mask import PIXEL_WEIGHT as PIXEL_WEIGHT
from paircaps.losses.mask import Mask, mask_loss, target_masks
from paircaps.losses.nll import NegativeLog, nll_loss
from paircaps.losses.objective import BatchLoss, Losses, Objective, count_right, is_right
from paircaps.losses.registry import follows_progress, is_loss, list_losses, register_loss
from paircaps.losses.settings import Loss
from paircaps.losses.spread import Spread, spread_loss

__all__ = [
    "BatchLoss",
    "Centripetal",
    "ClassLoss",
    "CrossEntropy",
    "Loss",
    "Losses",
    "Margin",
    "Mask",
    "MaskPair",
    "NegativeLog",
    "Objective",
    "Outputs",
    "Spread",
    "centripetal_loss",
    "count_right",
    "follows_progress",
    "is_loss",
    "is_right",
    "list_losses",
    "mask_loss",
    "nll_loss",
    "present_classes",
    "register_loss",
    "spread_loss",
    "target_masks",
]
