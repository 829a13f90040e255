"""ResNetPool: the same backbone with average pooling, of the same size as its capsule twin."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from paircaps._utils.checks import require_positive
from paircaps.models.pooling import PoolingModel, with_parameters_of_twin
from paircaps.models.registry import register_model
from paircaps.models.resnet import NormReLU, ResNetBackbone, conv
from paircaps.models.resnet_caps import MINIMUM_SIZE, SIZES, ResNetCapsules

KERNEL = 5


class ResNetPool(PoolingModel):
    """Pooling twin of ResNetCapsules: the same residual network and convolution, average pooling, a linear layer.

    Args:
        num_classes: outputs of the linear layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 8.
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

    def maps(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, head_width, H', W')."""
        return self.head(self.backbone(images))


for _ending, _size in SIZES.items():
    _factory = with_parameters_of_twin(ResNetPool, ResNetCapsules, common=("blocks", "widths"))
    register_model(f"resnet-pool{_ending}", partial(_factory, **_size))  # pyright: ignore[reportArgumentType]
