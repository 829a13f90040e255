"""Poses: position, rotation, scale and shear.

A pose is five numbers: x (pixels to the right) and y (pixels down) of the middle, rotation (degrees, counter-clockwise
as one sees it), scale, and shear. A point q of the upright picture, counted from its middle, goes to

    q' = (x, y) + R(rotation) · [[1, shear], [0, 1]] · scale · q
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.checks import require_within

POSE = ("x", "y", "rotation", "scale", "shear")
UPRIGHT = (0.0, 0.0, 0.0, 1.0, 0.0)


@dataclass(frozen=True)
class PoseRange:
    """Ranges of rotation, scale and shear, drawn from uniformly.

    Args:
        rotation: most degrees to either side.
        scale: least and most factor.
        shear: most shear to either side.
    """

    rotation: float = 20.0
    scale: tuple[float, float] = (0.8, 1.2)
    shear: float = 0.2

    def __post_init__(self) -> None:
        if not isinstance(self.scale, tuple | list) or len(self.scale) != 2:
            raise TypeError(f"scale must be (least, most), got {self.scale!r}")
        require_within("rotation", self.rotation, 0, 180)
        require_within("the most of scale", self.scale[1], 0.01, 100)
        require_within("the least of scale", self.scale[0], 0.01, self.scale[1])
        require_within("shear", self.shear, 0, 10)

    def draw(self, noise: Tensor) -> Tensor:
        """Rotation, scale and shear (B, 3) from random numbers in [0, 1) (B, 3)."""
        rotation = (2 * noise[:, 0] - 1) * self.rotation
        scale = self.scale[0] + noise[:, 1] * (self.scale[1] - self.scale[0])
        shear = (2 * noise[:, 2] - 1) * self.shear
        return torch.stack([rotation, scale, shear], -1)


def linear_map(pose: Tensor) -> Tensor:
    """Matrix R · shear · scale (..., 2, 2) of a pose (..., 5); x points right, y down."""
    angle, scale, shear = pose[..., 2] * (math.pi / 180), pose[..., 3], pose[..., 4]
    cos, sin = angle.cos(), angle.sin()
    rotation = torch.stack([cos, sin, -sin, cos], -1).unflatten(-1, (2, 2))  # y points down: counter-clockwise
    one, zero = torch.ones_like(shear), torch.zeros_like(shear)
    shearing = torch.stack([one, shear, zero, one], -1).unflatten(-1, (2, 2))
    return rotation @ shearing * scale[..., None, None]


def moved_boxes(boxes: Tensor, pose: Tensor) -> Tensor:
    """Axis-aligned boxes around boxes (B, 4) after the linear map of poses (B, 5), without their translation."""
    left, top, right, bottom = boxes.unbind(-1)
    corners = torch.stack([left, top, right, top, left, bottom, right, bottom], -1).unflatten(-1, (4, 2))
    moved = torch.einsum("bij,bcj->bci", linear_map(pose), corners.to(pose.dtype))
    return torch.cat([moved.amin(1), moved.amax(1)], -1)
