"""CapsNetPool: the two convolutions of CapsNet with average pooling, of the same size as its capsule twin."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from paircaps._checks import require_positive
from paircaps.functional import Capsules
from paircaps.models.base import ImageModel
from paircaps.models.capsnet import KERNEL, SIZES, CapsNet
from paircaps.models.matched import as_large_as
from paircaps.models.registry import register_model
from paircaps.registry import call_with_options
from paircaps.routing import RoutingFactory


class CapsNetPool(ImageModel):
    """The first convolution, that of the primary capsules, average pooling, a linear layer.

    The features stand in for the pose: all classes have the same one. The activation is the logit.

    Args:
        num_classes: outputs of the linear layer.
        in_channels: of an image.
        image_size: its side, or (height, width); at least 17.
        filters: of the first convolution.
        head_width: channels of the second one, which are the features.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        *,
        filters: int = 256,
        head_width: int = 256,
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, minimum_size=2 * KERNEL - 1)
        require_positive(filters=filters, head_width=head_width)
        self.pose_dim = head_width
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, filters, KERNEL), nn.ReLU(), nn.Conv2d(filters, head_width, KERNEL, 2), nn.ReLU()
        )
        for part in (self.features[0], self.features[2]):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")  # pyright: ignore[reportArgumentType]
        self.classify = nn.Linear(head_width, num_classes)

    def capsules(self, images: Tensor) -> Capsules:
        """(B, C, H, W) to features as capsules of (B, J, K), (B, J, K) and logits of (B, J)."""
        features = self.features(images).mean(dim=(-2, -1))  # (B, K)
        pose = features.unsqueeze(-2).expand(-1, self.num_classes, -1)
        return Capsules(pose, pose, self.classify(features))


def matched_pool(
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: int | tuple[int, int] = 28,
    routing: str | RoutingFactory = "fm",
    **overrides: Any,
) -> CapsNetPool:
    """The pooling network whose number of parameters is nearest to that of a CapsNet of these arguments."""
    shared = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
    filters = {name: overrides[name] for name in ("filters",) if name in overrides}
    return as_large_as(
        partial(CapsNetPool, **shared, **filters),
        partial(call_with_options, "the capsule twin", CapsNet, {**shared, "routing": routing}, overrides),
    )


for _ending, _size in SIZES.items():
    register_model(f"capsnet-pool{_ending}", partial(matched_pool, **_size))  # pyright: ignore[reportArgumentType]
