"""CapsNet: the architecture of Sabour, Frosst and Hinton (2017), with any routing (section 4.1 of the paper).

Aff-CapsNet, of Gu and Tresp (2020), is the same with one matrix for each parent, which all primary capsules share.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from paircaps._utils.checks import require_positive
from paircaps.layers import PrimaryCapsules
from paircaps.models.capsule_model import CapsuleModel
from paircaps.models.registry import register_model
from paircaps.models.stack import capsule_stack
from paircaps.routing import RoutingFactory

KERNEL = 9
MINIMUM_SIZE = 2 * KERNEL - 1  # two such convolutions leave a pixel


class CapsNet(CapsuleModel):
    """CapsNet of Sabour, Frosst and Hinton (2017): a convolution, primary capsules, layers with full vote matrices.

    Args:
        num_classes: capsules of the last layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 17.
        routing: a registered name, or a factory.
        filters: channels of the first convolution.
        groups: primary capsules at each position.
        primary_dim: K of a primary capsule.
        primary_squash: ``"square"`` as published, or another squash of :class:`paircaps.PrimaryCapsules`.
        pose_dim: K of the capsules above.
        hidden_capsules: sizes of capsule layers between the primary and the last one.
        share: ``"all"`` gives all primary capsules the same matrix for each parent, as in Aff-CapsNet, ``"position"``
            those of one kind, and None gives each its own. With either the network takes images of any size, and the
            first matrices are as large as for a single capsule.
        vote_norm: batch norm of the votes; the paper's runs have none here.
        routing_options: options of every layer's routing.
        streaming: whether dense votes of the whole batch are avoided; see CapsuleLayer.
    """

    FIELD = (1.0, KERNEL / 2)

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        routing: str | RoutingFactory = "fm",
        *,
        filters: int = 256,
        groups: int = 32,
        primary_dim: int = 8,
        primary_squash: str | None = "square",
        pose_dim: int = 16,
        hidden_capsules: tuple[int, ...] = (),
        share: str | None = None,
        vote_norm: str | None = None,
        routing_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_positive(filters=filters, groups=groups, primary_dim=primary_dim, pose_dim=pose_dim)
        self.pose_dim = pose_dim
        self.conv = nn.Conv2d(in_channels, filters, KERNEL)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        height, width = self.image_size
        self.primary = PrimaryCapsules(
            filters,
            (height - KERNEL + 1, width - KERNEL + 1),
            groups,
            primary_dim,
            kernel_size=KERNEL,
            stride=2,
            padding=0,
            bias=True,
            norm=None,
            squash=primary_squash,
            any_size=share is not None,
        )
        self.layers = capsule_stack(
            self.primary,
            hidden_capsules,
            num_classes,
            pose_dim=pose_dim,
            transform="vector",
            routing=routing,
            routing_options=routing_options,
            vote_norm=vote_norm,
            streaming=streaming,
            share=share,
            # by the rule over a whole layer, the mean of all votes would be too short to learn from
            start="layer" if share is None else "capsule",
        )

    @property
    def takes_any_size(self) -> bool:
        """Whether positions share their matrices, so that images may have other sizes."""
        return self.primary.any_size

    def features(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, filters, H − 8, W − 8)."""
        return self.conv(images).relu()


SIZES: dict[str, dict[str, int]] = {"": {}, "-light": {"filters": 64, "groups": 8}}
"""Widths by the ending of the model's name: those of the first CapsNet, and those of the paper's published runs."""


def aff_capsnet(size: Mapping[str, int]) -> partial[CapsNet]:
    """Factory of an Aff-CapsNet.

    Args:
        size: widths, a value of ``SIZES``.
    """
    return partial(CapsNet, share="all", **size)  # pyright: ignore[reportArgumentType]


for _ending, _size in SIZES.items():
    _factory = partial(CapsNet, **_size)  # pyright: ignore[reportArgumentType]
    register_model(f"capsnet{_ending}", _factory, pooling_twin=f"capsnet-pool{_ending}")
    register_model(
        f"aff-capsnet{_ending}", aff_capsnet(_size), pooling_twin=f"aff-capsnet-pool{_ending}", routing="mean"
    )
