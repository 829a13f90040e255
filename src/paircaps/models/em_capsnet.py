"""EMCapsNet: matrix capsules of Hinton, Sabour and Frosst (2018), with any routing."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from paircaps._utils.checks import require_positive, require_sizes
from paircaps.layers import CapsuleLayer, ConvCapsuleLayer, PrimaryCapsules
from paircaps.models.capsule_model import CapsuleModel
from paircaps.models.registry import register_model
from paircaps.models.stack import require_own_routings
from paircaps.routing import RoutingFactory, grid_options

KERNEL, STRIDE = 5, 2
"""Kernel and stride of the convolution."""

WINDOWS = ((3, 2), (3, 1))
"""Kernel and stride of the convolutional capsule layers, one after the other."""

MINIMUM_SIZE = 17
"""Least side of an image, from which the last convolutional capsules lie on a grid of 1×1."""


class EMCapsNet(CapsuleModel):
    """Matrix capsules of Hinton, Sabour and Frosst (2018): a convolution, and capsules in windows, layer by layer.

    Primary capsules have poses of 4×4 that are linear in the features, and activations by a convolution of their own.
    Two convolutional capsule layers follow. In the last layer, children of one kind share their matrices over all
    positions, and the votes get the coordinates of the child. Nothing is normalised. It takes images of any size from
    17×17 on.

    Args:
        num_classes: capsules of the last layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 17.
        routing: a registered name, or a factory. FM agreement weighs votes by the activations of their children.
        filters: A, channels of the convolution.
        kinds: B, kinds of primary capsules.
        conv_kinds: C and D, kinds of the convolutional capsule layers.
        pose_dim: K of every capsule, a square number.
        vote_norm: batch norm of the votes, ``"pose"``, ``"vote"`` or None; published is none.
        routing_options: options of every layer's routing, in place of those that the routing has for grids.
        streaming: whether dense votes of the whole batch are avoided; see CapsuleLayer.
    """

    FIELD = (float(STRIDE), KERNEL / 2)

    preferred_loss = "spread"

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        routing: str | RoutingFactory = "em",
        *,
        filters: int = 32,
        kinds: int = 32,
        conv_kinds: tuple[int, int] = (32, 32),
        pose_dim: int = 16,
        vote_norm: str | None = None,
        routing_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_positive(filters=filters, kinds=kinds, pose_dim=pose_dim)
        require_sizes("conv_kinds", conv_kinds, len(WINDOWS))
        require_own_routings(routing)
        self.pose_dim = pose_dim
        self.conv = first_convolution(in_channels, filters)
        height, width = self.image_size
        self.primary = PrimaryCapsules(
            filters,
            ((height - KERNEL) // STRIDE + 1, (width - KERNEL) // STRIDE + 1),
            kinds,
            pose_dim,
            kernel_size=1,
            stride=1,
            padding=0,
            bias=True,
            norm=None,
            squash=None,
            activation="features",
            any_size=True,
        )
        common: dict[str, Any] = {
            "pose_dim": pose_dim,
            "routing": routing,
            "vote_norm": vote_norm,
            "routing_options": {**grid_options(routing), **(routing_options or {})},
            "streaming": streaming,
            "start": "capsule",  # without a norm, votes as large as poses: small ones would shrink from layer to layer
        }
        layers: list[nn.Module] = []
        grid = self.primary.grid
        for out_kinds, (kernel, stride) in zip(conv_kinds, WINDOWS, strict=True):
            layer = ConvCapsuleLayer(kinds, out_kinds, kernel, stride, **common)
            layers.append(layer)
            grid, kinds = layer.out_size(grid), out_kinds
        self.layers = nn.Sequential(
            *layers, CapsuleLayer((*grid, kinds), num_classes, share="position", coordinates="add", **common)
        )

    @property
    def takes_any_size(self) -> bool:
        """Always True, since all positions share their weights."""
        return True

    def features(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, filters, (H − 5) // 2 + 1, (W − 5) // 2 + 1)."""
        return self.conv(images).relu()


def first_convolution(in_channels: int, filters: int) -> nn.Conv2d:
    """The convolution below the capsules, 5×5 with stride 2 and without padding.

    Args:
        in_channels: channels of an image.
        filters: channels of the feature maps.
    """
    convolution = nn.Conv2d(in_channels, filters, KERNEL, STRIDE)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return convolution


SIZES: dict[str, dict[str, Any]] = {"": {}, "-small": {"filters": 64, "kinds": 8, "conv_kinds": (16, 16)}}
"""Sizes of the publication, by the ending of the model's name."""

for _ending, _size in SIZES.items():
    _factory = partial(EMCapsNet, **_size)
    register_model(f"em-capsnet{_ending}", _factory, pooling_twin=f"em-capsnet-pool{_ending}", routing="em")
