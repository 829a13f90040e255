"""ResNetGridCapsules: the paper's network with capsules on a grid, whose positions share their vote matrices."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from paircaps.layers.primary import PrimaryCapsules
from paircaps.models.capsule_model import CapsuleModel
from paircaps.models.registry import register_model
from paircaps.models.resnet import ResNetBackbone
from paircaps.models.resnet_caps import MINIMUM_SIZE, SIZES
from paircaps.models.stack import capsule_stack
from paircaps.routing import RoutingFactory


class ResNetGridCapsules(CapsuleModel):
    """A residual network, primary capsules on a grid, and capsule layers whose lowest one shares its votes."""

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
        conv_kinds: tuple[int, ...] = (),
        kinds: int = 4,
        pose_dim: int = 16,
        primary_dim: int | None = None,
        primary_kernel: int = 5,
        primary_stride: int = 2,
        primary_norm: str | None = "pose",
        primary_activation: str = "length",
        transform: str = "matrix",
        coordinates: str | None = "add",
        vote_norm: str | None = "pose",
        routing_options: dict[str, object] | None = None,
        hidden_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        self.pose_dim = pose_dim
        self.backbone = ResNetBackbone(in_channels, blocks, widths)
        self.primary = PrimaryCapsules(
            self.backbone.out_channels,
            self.backbone.out_size(self.image_size),
            kinds,
            pose_dim if primary_dim is None else primary_dim,
            kernel_size=primary_kernel,
            stride=primary_stride,
            padding=primary_kernel // 2,
            norm=primary_norm,
            activation=primary_activation,
            any_size=True,
        )
        self.layers = capsule_stack(
            self.primary,
            hidden_capsules,
            num_classes,
            pose_dim=pose_dim,
            transform=transform,
            routing=routing,
            routing_options=routing_options,
            vote_norm=vote_norm,
            streaming=streaming,
            share="position",
            coordinates=coordinates,
            conv_kinds=conv_kinds,
            hidden_options=hidden_options,
        )

    FIELD = (float(ResNetBackbone.STRIDE), 0.5)

    @property
    def takes_any_size(self) -> bool:
        """Always True, since all positions share their weights."""
        return True

    def features(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, widths[-1], ⌈H/4⌉, ⌈W/4⌉)."""
        return self.backbone(images)


for _ending, _size in SIZES.items():
    _factory = partial(ResNetGridCapsules, **_size)  # pyright: ignore[reportArgumentType]
    register_model(f"resnet-caps-grid{_ending}", _factory, pooling_twin=f"resnet-pool{_ending}")
