"""ResNetCapsules: the paper's own architecture (section 3.4), capsule layers on a residual network."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from paircaps._utils.checks import require_choice
from paircaps.layers.primary import PRIMARY_NORMS, PrimaryCapsules
from paircaps.models.capsule_model import CapsuleModel
from paircaps.models.registry import register_model
from paircaps.models.resnet import ResNetBackbone
from paircaps.models.stack import capsule_stack
from paircaps.routing import RoutingFactory

MINIMUM_SIZE = 8
"""Least side of an image: the distance of two primary capsules in pixels. A smaller image would be mostly padding."""


class ResNetCapsules(CapsuleModel):
    """The paper's network: a residual network, primary capsules, and capsule layers with matrix votes and batch norm.

    Args:
        num_classes: capsules of the last layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 8.
        routing: a registered name, or a factory.
        blocks: residual blocks of the three stages.
        widths: channels of the three stages.
        hidden_capsules: sizes of capsule layers between the primary and the last one.
        primary_groups: primary capsules at each position.
        pose_dim: K of every capsule, a square number.
        vote_norm: ``"pose"``, ``"vote"`` (the smallNORB runs) or None.
        primary_norm: ``"pose"``, ``"capsule"`` (the smallNORB runs) or None.
        routing_options: options of every layer's routing.
        streaming: whether dense votes of the whole batch are avoided; see CapsuleLayer.
    """

    FIELD = (float(ResNetBackbone.STRIDE), 0.5)

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        routing: str | RoutingFactory = "fm",
        *,
        blocks: tuple[int, int, int] = (8, 8, 8),
        widths: tuple[int, int, int] = (16, 32, 64),
        hidden_capsules: tuple[int, ...] = (32, 16),
        primary_groups: int = 4,
        pose_dim: int = 16,
        vote_norm: str | None = "pose",
        primary_norm: str | None = "pose",
        routing_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_choice("primary_norm", primary_norm, PRIMARY_NORMS)
        self.pose_dim = pose_dim
        self.backbone = ResNetBackbone(in_channels, blocks, widths)
        self.primary = PrimaryCapsules(
            self.backbone.out_channels,
            self.backbone.out_size(self.image_size),
            primary_groups,
            pose_dim,
            norm=primary_norm,
        )
        self.layers = capsule_stack(
            self.primary,
            hidden_capsules,
            num_classes,
            pose_dim=pose_dim,
            transform="matrix",
            routing=routing,
            routing_options=routing_options,
            vote_norm=vote_norm,
            streaming=streaming,
        )

    def features(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, widths[-1], ⌈H/4⌉, ⌈W/4⌉)."""
        return self.backbone(images)


SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "": {},  # the defaults
    "-medium": {"blocks": (2, 2, 2), "hidden_capsules": ()},
    "-small": {"blocks": (1, 1, 1), "hidden_capsules": ()},
}
"""Sizes of the paper's models, by the ending of their names."""

for _ending, _size in SIZES.items():
    _factory = partial(ResNetCapsules, **_size)  # pyright: ignore[reportArgumentType]
    register_model(f"resnet-caps{_ending}", _factory, pooling_twin=f"resnet-pool{_ending}")
