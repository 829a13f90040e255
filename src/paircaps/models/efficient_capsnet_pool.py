"""EfficientCapsNetPool: the convolutions of Efficient-CapsNet with average pooling, of the size of its capsule twin."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from paircaps._utils.checks import require_positive
from paircaps.models.efficient_capsnet import VARIANTS, EfficientBackbone, EfficientCapsNet, smallest_image
from paircaps.models.pooling import PoolingModel, with_parameters_of_twin
from paircaps.models.registry import register_model


class EfficientCapsNetPool(PoolingModel):
    """Pooling twin of EfficientCapsNet: its four convolutions, average pooling, a linear layer.

    Args:
        num_classes: outputs of the linear layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 11, or 23 for ``efficient-capsnet-pool-norb``.
        widths: channels of the first three convolutions.
        stem_kernel: side of the first kernel.
        stem_stride: stride of the first convolution.
        norm: norm after each convolution, ``"batch"`` or ``"instance"``.
        slope: slope of their ReLUs below zero.
        head_width: channels of the last convolution, which are the features.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        *,
        widths: tuple[int, int, int] = (32, 64, 64),
        stem_kernel: int = 5,
        stem_stride: int = 1,
        norm: str = "batch",
        slope: float = 0.0,
        head_width: int = 128,
    ) -> None:
        require_positive(head_width=head_width, stem_kernel=stem_kernel)
        super().__init__(num_classes, in_channels, image_size, smallest_image(stem_kernel, stem_stride, norm))
        self.pose_dim = head_width
        self.features = EfficientBackbone(in_channels, widths, head_width, stem_kernel, stem_stride, norm, slope)
        self.classify = nn.Linear(head_width, num_classes)

    def maps(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, head_width, H', W')."""
        return self.features(images)


for _ending, _options in VARIANTS.items():
    _factory = with_parameters_of_twin(
        EfficientCapsNetPool, EfficientCapsNet, common=("widths", "stem_kernel", "stem_stride", "norm", "slope")
    )
    register_model(f"efficient-capsnet-pool{_ending}", partial(_factory, **_options))  # pyright: ignore[reportArgumentType]
