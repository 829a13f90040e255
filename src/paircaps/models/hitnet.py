"""HitNet: CapsNet's convolutions below a hit-or-miss layer (Deliège, Cioppa and Van Droogenbroeck 2018)."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor, nn

from paircaps.functional import Capsules, centre_distance
from paircaps.layers.norms import CapsuleNorm
from paircaps.models.base import ImageModel
from paircaps.models.capsnet import MINIMUM_SIZE, CapsNet
from paircaps.models.registry import register_model
from paircaps.routing import RoutingFactory


class HitOrMiss(nn.Module):
    """Capsules to the unit cube, where the middle stands for presence: batch norm and a sigmoid of every number.

        pose = σ(BN(s)),  a_j = 1 − 2 ‖pose_j − (0.5, …)‖ / √K

    So an activation is 1 in the middle of the cube and 0 in its corners.

    Args:
        capsules: J, the number of capsules.
        pose_dim: K of a capsule.
    """

    def __init__(self, capsules: int, pose_dim: int) -> None:
        super().__init__()
        self.norm = CapsuleNorm((capsules, pose_dim))

    def forward(self, s: Tensor) -> Capsules:
        """Capsules in the unit cube, (B, J, K), (B, J, K) and (B, J), of vectors (B, J, K)."""
        pose = self.norm(s).sigmoid()
        return Capsules(pose, pose, 1 - centre_distance(pose) * (2 / math.sqrt(pose.shape[-1])))


class HitNet(ImageModel):
    """HitNet of Deliège, Cioppa and Van Droogenbroeck (2018): convolutions of CapsNet, and a hit-or-miss layer.

    As published it has no routing: a dense layer gives the capsules of the classes, which is the sum of the votes of
    primary capsules without a squash (``routing="sum"``). Any other routing may stand there; the hit-or-miss layer
    takes the vectors of its parents, and says itself how active they are.

    Args:
        num_classes: capsules of the last layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 17.
        routing: a registered name, or a factory.
        filters: channels of the first convolution.
        groups: primary capsules at each position.
        primary_dim: K of a primary capsule.
        pose_dim: K of the capsules above.
        hidden_capsules: sizes of capsule layers between the primary and the last one.
        vote_norm: batch norm of the votes; there is none as published.
        routing_options: options of every layer's routing.
        streaming: whether dense votes of the whole batch are avoided; see CapsuleLayer.
    """

    preferred_loss: ClassVar[str | None] = "centripetal"

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        routing: str | RoutingFactory = "sum",
        *,
        filters: int = 256,
        groups: int = 32,
        primary_dim: int = 8,
        pose_dim: int = 16,
        hidden_capsules: tuple[int, ...] = (),
        vote_norm: str | None = None,
        routing_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        self.pose_dim = pose_dim
        self.body = CapsNet(
            num_classes,
            in_channels,
            image_size,
            routing,
            filters=filters,
            groups=groups,
            primary_dim=primary_dim,
            primary_squash="relu",
            pose_dim=pose_dim,
            hidden_capsules=hidden_capsules,
            vote_norm=vote_norm,
            routing_options=routing_options,
            streaming=streaming,
        )
        self.hit_or_miss = HitOrMiss(num_classes, pose_dim)

    @property
    def layers(self) -> nn.Sequential:
        """Capsule layers below the hit-or-miss layer."""
        return self.body.layers

    @property
    def bounded(self) -> bool:
        """Always True, since activations fall from 1 in the middle of the cube to 0 in its corners."""
        return True

    @property
    def in_unit_cube(self) -> bool:
        """Always True."""
        return True

    def capsules(self, images: Tensor) -> Capsules:
        """(B, C, H, W) to capsules of (B, J, K), (B, J, K) and (B, J)."""
        return self.hit_or_miss(self.body.capsules(images).s)


register_model("hitnet", HitNet, pooling_twin="capsnet-pool", routing="sum")
