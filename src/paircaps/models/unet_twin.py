"""UNetTwin: a plain U-Net, of the same size as the segmentation network of capsules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_positive
from paircaps.models.caps_segment import MINIMUM_SIZE, CapsSegment
from paircaps.models.mask_parts import MaskStem, MaskTop, enlarged, mask_reader, to_pixels
from paircaps.models.pooling import with_parameters_of_twin
from paircaps.models.registry import register_model
from paircaps.models.resnet import NormReLU, conv
from paircaps.models.segment import MaskModel

WIDTH = 48
"""Channels at a quarter of the size."""


class UNetTwin(MaskModel):
    """A plain U-Net, the twin of CapsSegment: the same stem and top, and convolutions in place of its capsules.

    All classes share the pose of a position, the features that their masks are read from.

    Args:
        num_classes: masks.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 8. It takes other sizes, too.
        width: channels of the stem, at half the size.
        features: channels from which the masks are read.
        head_width: channels at an eighth of the size.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        *,
        width: int = 32,
        features: int = 48,
        head_width: int = 64,
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_positive(head_width=head_width)
        self.pose_dim = features
        self.stem = MaskStem(in_channels, width)
        self.down = nn.Sequential(conv(width, WIDTH, 3, 2), NormReLU(WIDTH))
        self.bottom = nn.Sequential(
            conv(WIDTH, head_width, 3, 2), NormReLU(head_width), conv(head_width, WIDTH, 3), NormReLU(WIDTH)
        )
        self.up = nn.Sequential(conv(2 * WIDTH, WIDTH, 3), NormReLU(WIDTH))
        self.top = MaskTop(WIDTH, width, features)
        self.read = mask_reader(features, num_classes)

    def masks_and_poses(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) to logits of (B, J, H, W) and features of (B, 1, features, ⌈H/2⌉, ⌈W/2⌉)."""
        fine = self.stem(images)
        quarter = self.down(fine)
        coarse = self.up(torch.cat([enlarged(self.bottom(quarter), quarter), quarter], 1))
        features = self.top(coarse, fine)
        return to_pixels(self.read(features), (images.shape[-2], images.shape[-1])), features.unsqueeze(1)


_factory = with_parameters_of_twin(UNetTwin, CapsSegment, common=("width", "features"))
register_model("unet-twin", _factory)
