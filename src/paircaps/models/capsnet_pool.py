"""CapsNetPool: the two convolutions of CapsNet with average pooling, of the same size as its capsule twin."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from paircaps._utils.checks import require_positive
from paircaps.models.capsnet import KERNEL, MINIMUM_SIZE, SIZES, CapsNet, aff_capsnet
from paircaps.models.pooling import PoolingModel, with_parameters_of_twin
from paircaps.models.registry import register_model


class CapsNetPool(PoolingModel):
    """Pooling twin of CapsNet and Aff-CapsNet: their first two convolutions, average pooling, a linear layer.

    Args:
        num_classes: outputs of the linear layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 17.
        filters: channels of the first convolution.
        head_width: channels of the second convolution, which are the features.
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
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_positive(filters=filters, head_width=head_width)
        self.pose_dim = head_width
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, filters, KERNEL), nn.ReLU(), nn.Conv2d(filters, head_width, KERNEL, 2), nn.ReLU()
        )
        for part in (self.features[0], self.features[2]):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")  # pyright: ignore[reportArgumentType]
        self.classify = nn.Linear(head_width, num_classes)

    def maps(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, head_width, H', W')."""
        return self.features(images)


for _ending, _size in SIZES.items():
    for _prefix, _twin in (("", CapsNet), ("aff-", aff_capsnet({}))):
        _factory = with_parameters_of_twin(CapsNetPool, _twin, common=("filters",))
        register_model(f"{_prefix}capsnet-pool{_ending}", partial(_factory, **_size))  # pyright: ignore[reportArgumentType]
