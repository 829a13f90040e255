"""CapsSegment: a small U-shaped network of convolutional capsules, which gives one mask per class."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_positive
from paircaps.functional import Capsules
from paircaps.layers import CapsuleLayer, ConvCapsuleLayer, PrimaryCapsules
from paircaps.layers.norms import EPS, MOMENTUM, CapsuleNorm
from paircaps.models.mask_parts import BLOCK, MaskStem, MaskTop, mask_reader, to_pixels
from paircaps.models.registry import register_model
from paircaps.models.resnet import NormReLU, conv
from paircaps.models.segment import MaskModel
from paircaps.models.stack import require_own_routings
from paircaps.routing import RoutingFactory, grid_options

MINIMUM_SIZE = 8
"""Smallest side of an image, from which the deepest capsules lie on a grid of 1×1."""

COARSE = 64
"""Channels that carry the capsules of the classes to the top."""


class CapsSegment(MaskModel):
    """Segmentation with capsules: convolutional capsule layers down and up, and capsules of the classes on two scales.

    Primary capsules lie at a quarter of the image's size, and a capsule layer at an eighth. From there all positions
    vote for one capsule of each class, which knows the whole image. On the way up, the deep capsules are copied to the
    finer grid, beside the primary capsules, and vote for one capsule of each class at every position. These make
    features at half the size, with a skip from the stem. Masks are read from the features with weights of two kinds:
    some are the same for all images, and others come from the pose of the image's capsule of the class.

    Args:
        num_classes: masks, and kinds of capsules of the last layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 8. It takes other sizes, too.
        routing: a registered name, or a factory. FM agreement weighs votes by the activations of their children.
        width: channels of the stem, at half the size.
        features: channels from which the masks are read.
        kinds: kinds of primary capsules: so many lie at each position.
        deep_kinds: kinds of capsules at an eighth of the size.
        pose_dim: K of every capsule.
        transform: ``"matrix"``, K weights for each pair of kinds and place in a window, or ``"vector"``, K² weights.
        vote_norm: ``"pose"``, ``"vote"`` or None.
        routing_options: options of every layer's routing, in place of those that the routing has for grids.
        streaming: whether dense votes of the whole batch are avoided; see CapsuleLayer.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        routing: str | RoutingFactory = "fm",
        *,
        width: int = 32,
        features: int = 48,
        kinds: int = 4,
        deep_kinds: int = 8,
        pose_dim: int = 16,
        transform: str = "matrix",
        vote_norm: str | None = "pose",
        routing_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_own_routings(routing)
        require_positive(kinds=kinds, deep_kinds=deep_kinds)
        self.pose_dim = pose_dim
        common: dict[str, Any] = {
            "pose_dim": pose_dim,
            "routing": routing,
            "transform": transform,
            "vote_norm": vote_norm,
            "routing_options": {**grid_options(routing), **(routing_options or {})},
            "streaming": streaming,
        }
        # down to a quarter and to an eighth of the size
        self.stem = MaskStem(in_channels, width)
        half = tuple(-(-side // 2) for side in self.image_size)
        self.primary = PrimaryCapsules(
            width,
            (half[0], half[1]),
            kinds,
            pose_dim,
            norm="channel",
            activation="learned",
            any_size=True,
        )
        self.down = ConvCapsuleLayer(kinds, deep_kinds, 3, 2, 1, **common)
        grid = self.down.out_size(self.primary.grid)
        self.whole = CapsuleLayer((*grid, deep_kinds), num_classes, share="position", coordinates="add", **common)
        # up to a quarter and to half the size
        self.up = ConvCapsuleLayer(deep_kinds + kinds, num_classes, 1, **common)
        channels = num_classes * (pose_dim + 1)
        self.coarse = nn.Sequential(
            nn.BatchNorm2d(channels, eps=EPS, momentum=MOMENTUM), conv(channels, COARSE, 1), NormReLU(COARSE)
        )
        self.top = MaskTop(COARSE, width, features)
        # masks, of all pixels of a square
        self.read = mask_reader(features, num_classes)
        self.weights = nn.Sequential(CapsuleNorm((pose_dim + 1,)), nn.Linear(pose_dim + 1, BLOCK**2 * (features + 1)))

    def masks_and_poses(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) to logits of (B, J, H, W) and poses of (B, J, K, ⌈H/4⌉, ⌈W/4⌉)."""
        fine = self.stem(images)
        primary = self.primary(fine)
        deep = _like(primary, self.down(primary))
        whole, local = (_like(primary, layer) for layer in (self.whole(deep), self.up(beside(deep, primary))))
        features = self.top(self.coarse(_as_maps(local)), fine)
        masks = self.read(features) + self._read_by_pose(whole, features)
        return to_pixels(masks, (images.shape[-2], images.shape[-1])), local.pose.permute(0, 3, 4, 1, 2)

    def _read_by_pose(self, whole: Capsules, features: Tensor) -> Tensor:
        """Read masks (B, 4 · J, h, w) from features with weights that come from the image's capsules (B, J, K)."""
        weights = self.weights(torch.cat([whole.pose, whole.activation.unsqueeze(-1)], -1))
        weights = weights.unflatten(-1, (BLOCK**2, -1)).flatten(1, 2)  # (B, 4 · J, features + 1)
        products = torch.einsum("bmf,bfhw->bmhw", weights[..., :-1], features)
        return products / math.sqrt(features.shape[1]) + weights[..., -1, None, None]


def _like(below: Capsules, capsules: Capsules) -> Capsules:
    """Capsules in the precision of those below: sums over votes are in full precision, in half networks too."""
    return Capsules(*(part.to(below.s.dtype) for part in capsules))


def _as_maps(capsules: Capsules) -> Tensor:
    """Poses and activations of capsules on a grid, (B, h, w, J, K), as maps of (B, J · (K + 1), h, w)."""
    both = torch.cat([capsules.pose, capsules.activation.unsqueeze(-1)], -1)
    return both.flatten(-2).movedim(-1, 1)


def beside(coarse: Capsules, fine: Capsules) -> Capsules:
    """Capsules of a coarse grid, each copied to the positions that it covers, beside those of a fine grid.

    Args:
        coarse: capsules of (B, h, w, kinds, K).
        fine: capsules of (B, H, W, other kinds, K).

    Returns:
        capsules of (B, H, W, kinds + other kinds, K).
    """
    rows, columns = (
        torch.arange(wide, device=fine.s.device) * narrow // wide
        for wide, narrow in zip(fine.s.shape[1:3], coarse.s.shape[1:3], strict=True)
    )

    def copied(values: Tensor) -> Tensor:
        return values[:, rows][:, :, columns]

    return Capsules(
        torch.cat([copied(coarse.s), fine.s], -2),
        torch.cat([copied(coarse.pose), fine.pose], -2),
        torch.cat([copied(coarse.activation), fine.activation], -1),
    )


register_model("caps-segment", CapsSegment, pooling_twin="unet-twin")
