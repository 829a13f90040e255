"""ResNetPool: the same backbone with average pooling, of the same size as its capsule twin.

A capsule result without it proves nothing: the backbone and the number of parameters may have done it all.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from paircaps._checks import require_positive
from paircaps.functional import Capsules
from paircaps.models.base import ImageModel
from paircaps.models.matched import as_large_as
from paircaps.models.registry import register_model
from paircaps.models.resnet import NormReLU, ResNetBackbone, conv
from paircaps.models.resnet_caps import MINIMUM_SIZE, SIZES, ResNetCapsules
from paircaps.registry import call_with_options
from paircaps.routing import RoutingFactory

KERNEL = 5


class ResNetPool(ImageModel):
    """Residual network, the convolution of the primary capsules, average pooling, a linear layer.

    The features stand in for the pose: all classes have the same one. The activation is the logit.

    Args:
        num_classes: outputs of the linear layer.
        in_channels: of an image.
        image_size: its side, or (height, width); at least 8.
        blocks: residual blocks of the three stages.
        widths: channels of the three stages.
        head_width: channels of the last convolution, which are the features.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        *,
        blocks: tuple[int, int, int] = (8, 8, 8),
        widths: tuple[int, int, int] = (16, 32, 64),
        head_width: int = 64,
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_positive(head_width=head_width)
        self.pose_dim = head_width
        self.backbone = ResNetBackbone(in_channels, blocks, widths)
        self.head = nn.Sequential(conv(self.backbone.out_channels, head_width, KERNEL, stride=2), NormReLU(head_width))
        self.classify = nn.Linear(head_width, num_classes)

    def capsules(self, images: Tensor) -> Capsules:
        """(B, C, H, W) to features as capsules of (B, J, K), (B, J, K) and logits of (B, J)."""
        features = self.head(self.backbone(images)).mean(dim=(-2, -1))  # (B, K)
        pose = features.unsqueeze(-2).expand(-1, self.num_classes, -1)
        return Capsules(pose, pose, self.classify(features))


def matched_pool(
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: int | tuple[int, int] = 28,
    routing: str | RoutingFactory = "fm",
    **overrides: Any,
) -> ResNetPool:
    """The pooling network whose number of parameters is nearest to that of a ResNetCapsules of these arguments."""
    shared = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
    backbone = {name: overrides[name] for name in ("blocks", "widths") if name in overrides}
    return as_large_as(
        partial(ResNetPool, **shared, **backbone),
        partial(call_with_options, "the capsule twin", ResNetCapsules, {**shared, "routing": routing}, overrides),
    )


for _ending, _size in SIZES.items():
    register_model(f"resnet-pool{_ending}", partial(matched_pool, **_size))  # pyright: ignore[reportArgumentType]
