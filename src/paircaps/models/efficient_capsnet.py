"""Efficient-CapsNet: convolutions, the last of them depthwise, to 16 capsules (Mazzia, Salvetti and Chiaberge 2021)."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_positive, require_sizes, require_within
from paircaps.layers import PrimaryCapsules
from paircaps.layers.norms import EPS
from paircaps.models.capsule_model import CapsuleModel
from paircaps.models.registry import register_model
from paircaps.models.stack import capsule_stack
from paircaps.routing import RoutingFactory

CONV_NORMS = {"batch": partial(nn.BatchNorm2d, eps=EPS), "instance": partial(nn.InstanceNorm2d, eps=EPS, affine=True)}
"""Norms of feature maps by name: statistics of the batch, or of each image alone."""


class EfficientBackbone(nn.Sequential):
    """The convolutions of Efficient-CapsNet, each with a ReLU and a norm: the stem, two of 3×3, and one of stride 2.

    Args:
        in_channels: channels of an image.
        widths: channels of the first three convolutions.
        out_channels: channels of the last one.
        stem_kernel: side of the first kernel.
        stem_stride: stride of the first convolution.
        norm: ``"batch"`` or ``"instance"``.
        slope: slope of the ReLUs below zero.
    """

    def __init__(
        self,
        in_channels: int,
        widths: tuple[int, int, int],
        out_channels: int,
        stem_kernel: int,
        stem_stride: int,
        norm: str,
        slope: float,
    ) -> None:
        super().__init__()
        require_sizes("widths", widths, 3)
        require_positive(out_channels=out_channels, stem_kernel=stem_kernel, stem_stride=stem_stride)
        require_choice("norm", norm, CONV_NORMS)
        require_within("slope", slope, 0, 1)
        self.steps = ((stem_kernel, stem_stride), (3, 1), (3, 1), (3, 2))
        for channels, (kernel, stride) in zip((*widths, out_channels), self.steps, strict=True):
            conv = nn.Conv2d(in_channels, channels, kernel, stride)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            nn.init.zeros_(conv.bias)  # pyright: ignore[reportArgumentType]
            self.extend([conv, nn.LeakyReLU(slope) if slope else nn.ReLU(), CONV_NORMS[norm](channels)])
            in_channels = channels

    def out_size(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the feature maps of images of a size."""
        height, width = image_size
        for kernel, stride in self.steps:
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        return height, width

    @property
    def field(self) -> tuple[float, float]:
        """Distance of neighbouring features in the image, and centre of the first one, in pixels."""
        distance, first = 1, 0.5
        for kernel, stride in self.steps:
            first, distance = first + distance * (kernel - 1) / 2, distance * stride
        return float(distance), first


def smallest_image(stem_kernel: int, stem_stride: int, norm: str) -> int:
    """Side of the smallest image: its last feature map is a pixel, or two by two, which a norm of one image needs."""
    least = 2 if norm == "instance" else 1
    return stem_kernel + stem_stride * (6 + 2 * (least - 1))


class EfficientCapsNet(CapsuleModel):
    """Efficient-CapsNet of Mazzia, Salvetti and Chiaberge (2021): few primary capsules, each of which sees the image.

    Four convolutions, then one depthwise convolution whose kernel covers what is left of the image, so that each kind
    of primary capsule is there once; then capsule layers with full vote matrices.

    Args:
        num_classes: capsules of the last layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 11, or 23 for ``efficient-capsnet-norb``.
        routing: a registered name, or a factory.
        widths: channels of the first three convolutions; the last one has a channel for each number of the primary
            capsules.
        stem_kernel: side of the first kernel.
        stem_stride: stride of the first convolution.
        norm: norm after each of the four, ``"batch"``, or ``"instance"``, which takes each image alone.
        slope: slope of their ReLUs below zero.
        groups: primary capsules.
        primary_dim: K of a primary capsule.
        pose_dim: K of the capsules above.
        hidden_capsules: sizes of capsule layers between the primary and the last one.
        vote_norm: batch norm of the votes; there is none as published.
        routing_options: options of every layer's routing.
        streaming: whether dense votes of the whole batch are avoided; see CapsuleLayer.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        routing: str | RoutingFactory = "efficient",
        *,
        widths: tuple[int, int, int] = (32, 64, 64),
        stem_kernel: int = 5,
        stem_stride: int = 1,
        norm: str = "batch",
        slope: float = 0.0,
        groups: int = 16,
        primary_dim: int = 8,
        pose_dim: int = 16,
        hidden_capsules: tuple[int, ...] = (),
        vote_norm: str | None = None,
        routing_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
    ) -> None:
        require_positive(groups=groups, primary_dim=primary_dim, pose_dim=pose_dim, stem_kernel=stem_kernel)
        super().__init__(num_classes, in_channels, image_size, smallest_image(stem_kernel, stem_stride, norm))
        self.pose_dim = pose_dim
        channels = groups * primary_dim
        self.backbone = EfficientBackbone(in_channels, widths, channels, stem_kernel, stem_stride, norm, slope)
        self.FIELD = self.backbone.field
        left = self.backbone.out_size(self.image_size)
        self.primary = PrimaryCapsules(
            channels,
            left,
            groups,
            primary_dim,
            kernel_size=left,
            stride=1,
            padding=0,
            bias=True,
            norm=None,
            squash="exponential",
            depthwise=True,
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
        )

    def features(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, groups · primary_dim, H', W')."""
        return self.backbone(images)


VARIANTS: dict[str, dict[str, object]] = {
    "": {},
    "-norb": {"stem_kernel": 7, "stem_stride": 2, "norm": "instance", "slope": 0.3},
}
"""Options by the ending of the model's name: those for MNIST, and those for crops of 48×48 from smallNORB."""

for _ending, _options in VARIANTS.items():
    register_model(
        f"efficient-capsnet{_ending}",
        partial(EfficientCapsNet, **_options),  # pyright: ignore[reportArgumentType]
        pooling_twin=f"efficient-capsnet-pool{_ending}",
        routing="efficient",
    )
