"""FastPool: the fast body with max-pooling, of the same size as its capsule twin."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from paircaps._utils.checks import require_positive
from paircaps.models.fast import MINIMUM_SIZE, FastBackbone, NormGELU
from paircaps.models.fast_caps import SIZES, FastCapsules
from paircaps.models.pooling import PoolingModel, with_parameters_of_twin
from paircaps.models.registry import register_model
from paircaps.models.resnet import conv


class FastPool(PoolingModel):
    """Pooling twin of FastCapsules: the same stem and convolutions, max-pooling over all positions, a linear layer.

    Args:
        num_classes: outputs of the linear layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 9.
        widths: channels of the three groups of convolutions.
        stem: ``"whitening"``, frozen and fitted to training images, or ``"conv"``, which is trained.
        head_width: channels of the last convolution, which are the features.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        *,
        widths: tuple[int, int, int] = (64, 128, 128),
        stem: str = "whitening",
        head_width: int = 128,
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_positive(head_width=head_width)
        self.pose_dim = head_width
        self.backbone = FastBackbone(in_channels, widths, stem)
        self.head = nn.Sequential(conv(self.backbone.out_channels, head_width, 3), NormGELU(head_width))
        self.classify = nn.Linear(head_width, num_classes)

    def fit(self, images: Tensor) -> None:
        """Fit the whitening stem to training images (B, C, H, W)."""
        self.backbone.stem.fit(images)

    def maps(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, head_width, H', W')."""
        return self.head(self.backbone(images))

    def pool(self, maps: Tensor) -> Tensor:
        """Feature maps (B, K, H', W') to features (B, K): the largest of all positions."""
        return maps.amax(dim=(-2, -1))


for _ending, _size in SIZES.items():
    _factory = with_parameters_of_twin(FastPool, FastCapsules, common=("widths", "stem"))
    register_model(f"fast-pool{_ending}", partial(_factory, **_size))  # pyright: ignore[reportArgumentType]
