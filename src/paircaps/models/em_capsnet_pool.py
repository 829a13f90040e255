"""EMCapsNetPool: the convolutions of matrix capsules with average pooling, of the same size as its capsule twin."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from paircaps._utils.checks import require_positive
from paircaps.models.em_capsnet import MINIMUM_SIZE, SIZES, WINDOWS, EMCapsNet, first_convolution
from paircaps.models.pooling import PoolingModel, with_parameters_of_twin
from paircaps.models.registry import register_model


class EMCapsNetPool(PoolingModel):
    """Pooling twin of EMCapsNet: the same convolutions, plain ones in place of capsules in windows, average pooling.

    The first of these has a channel for each kind, and so as many weights as the capsule layer has in its matrices.

    Args:
        num_classes: outputs of the linear layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 17.
        filters: channels of the first convolution.
        kinds: the 1×1 convolution has ``pose_dim`` times as many channels.
        conv_kinds: its first number is that of the channels of the next convolution.
        pose_dim: channels for each kind.
        head_width: channels of the last convolution, which are the features.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        *,
        filters: int = 32,
        kinds: int = 32,
        conv_kinds: tuple[int, int] = (32, 32),
        pose_dim: int = 16,
        head_width: int = 512,
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_positive(filters=filters, kinds=kinds, pose_dim=pose_dim, head_width=head_width)
        self.pose_dim = head_width
        widths = (kinds * pose_dim, conv_kinds[0], head_width)
        layers: list[nn.Module] = [first_convolution(in_channels, filters), nn.ReLU()]
        below = filters
        for width, (kernel, stride) in zip(widths, ((1, 1), *WINDOWS), strict=True):
            convolution = nn.Conv2d(below, width, kernel, stride)
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            layers += [convolution, nn.ReLU()]
            below = width
        self.features = nn.Sequential(*layers)
        self.classify = nn.Linear(head_width, num_classes)

    def maps(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, head_width, H', W')."""
        return self.features(images)


for _ending, _size in SIZES.items():
    _factory = with_parameters_of_twin(EMCapsNetPool, EMCapsNet, common=("filters", "kinds", "conv_kinds", "pose_dim"))
    register_model(f"em-capsnet-pool{_ending}", partial(_factory, **_size))
