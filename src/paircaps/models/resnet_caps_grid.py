"""ResNetGridCapsules: the paper's residual network with capsules on a grid, whose positions share their votes."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from paircaps._utils.checks import require_bool
from paircaps.layers.primary import PrimaryCapsules
from paircaps.models.capsule_model import CapsuleModel
from paircaps.models.registry import register_model
from paircaps.models.resnet import ResNetBackbone
from paircaps.models.resnet_caps import MINIMUM_SIZE, SIZES
from paircaps.models.stack import capsule_stack
from paircaps.routing import RoutingFactory, fold_options, grid_options


class ResNetGridCapsules(CapsuleModel):
    """Capsules on a grid: a residual network, primary capsules that learn whether they see something, shared votes.

    All positions share their vote matrices, so what was learned at one place is known at all others, and coordinates
    tell the votes where they come from. It takes images of any size from 8×8 on.

    Args:
        num_classes: capsules of the last layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 8.
        routing: a registered name, or a factory. FM agreement weighs votes by the activations of their children.
        blocks: residual blocks of the three stages.
        widths: channels of the three stages.
        conv_kinds: kinds of capsules of each convolutional capsule layer (3×3 windows) above the primary capsules.
        hidden_capsules: sizes of capsule layers between the grid and the last layer.
        kinds: kinds of primary capsules: so many lie at each position.
        pose_dim: K of every capsule.
        primary_stride: distance of neighbouring primary capsules in feature maps, which are 4 pixels apart.
        primary_norm: ``"pose"``, ``"channel"`` or None.
        primary_activation: ``"learned"`` or ``"length"``; see PrimaryCapsules.
        fine: for grids with a capsule at every feature: learned activations begin sparse, the layer that folds the
            grid takes the routing's options for that (``fold_options``), and its vote matrices begin as large as for
            one capsule. The models ``resnet-caps-fine`` have this and ``primary_stride=1``.
        transform: ``"vector"``, K² weights for each pair of kinds, or ``"matrix"``, K weights.
        coordinates: ``"add"``, ``"learned"`` or None; see CapsuleLayer.
        vote_norm: ``"pose"``, ``"vote"`` or None.
        routing_options: options of every layer's routing, in place of those that the routing has for grids.
        hidden_options: further options of the routings below the last layer.
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
        conv_kinds: tuple[int, ...] = (),
        hidden_capsules: tuple[int, ...] = (),
        kinds: int = 4,
        pose_dim: int = 16,
        primary_stride: int = 2,
        primary_norm: str | None = "channel",
        primary_activation: str = "learned",
        fine: bool = False,
        transform: str = "vector",
        coordinates: str | None = "add",
        vote_norm: str | None = "pose",
        routing_options: dict[str, object] | None = None,
        hidden_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_bool(fine=fine)
        self.pose_dim = pose_dim
        self.backbone = ResNetBackbone(in_channels, blocks, widths)
        self.primary = PrimaryCapsules(
            self.backbone.out_channels,
            self.backbone.out_size(self.image_size),
            kinds,
            pose_dim,
            stride=primary_stride,
            norm=primary_norm,
            activation=primary_activation,
            sparse=fine and primary_activation == "learned",
            any_size=True,
        )
        self.layers = capsule_stack(
            self.primary,
            hidden_capsules,
            num_classes,
            pose_dim=pose_dim,
            transform=transform,
            routing=routing,
            routing_options={**grid_options(routing), **(routing_options or {})},
            hidden_options=hidden_options,
            vote_norm=vote_norm,
            streaming=streaming,
            share="position",
            coordinates=coordinates,
            conv_kinds=conv_kinds,
            fold_options=fold_options(routing) if fine else None,
            start="capsule" if fine else "layer",
        )

    @property
    def takes_any_size(self) -> bool:
        """Always True, since all positions share their weights."""
        return True

    def features(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, widths[-1], ⌈H/4⌉, ⌈W/4⌉)."""
        return self.backbone(images)


for _ending, _size in SIZES.items():
    _factory = partial(ResNetGridCapsules, blocks=_size.get("blocks", (8, 8, 8)))  # pyright: ignore[reportArgumentType]
    register_model(f"resnet-caps-grid{_ending}", _factory, pooling_twin=f"resnet-pool{_ending}")
    _fine = partial(_factory, primary_stride=1, fine=True)
    register_model(f"resnet-caps-fine{_ending}", _fine, pooling_twin=f"resnet-pool{_ending}")
