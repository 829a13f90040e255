"""The backbone: a pre-activation residual network for small images (He et al., 2016)."""

from __future__ import annotations

from torch import Tensor, nn

from paircaps._utils.checks import require_sizes
from paircaps.layers.norms import EPS, MOMENTUM

STEM_WIDTH = 16


class NormReLU(nn.Sequential):
    """Batch norm and ReLU, with the paper's constants."""

    def __init__(self, channels: int) -> None:
        super().__init__(nn.BatchNorm2d(channels, eps=EPS, momentum=MOMENTUM), nn.ReLU())


class BasicBlock(nn.Module):
    """Two 3×3 convolutions, each after batch norm and ReLU, and a shortcut around them.

    Args:
        in_channels: channels of the input.
        out_channels: channels of both convolutions.
        stride: stride of the first convolution.
        preactivated: whether the input comes from a batch norm and ReLU already, so that the block has none first.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1, *, preactivated: bool = False) -> None:
        super().__init__()
        self.norm1 = nn.Identity() if preactivated else NormReLU(in_channels)
        self.conv1 = conv(in_channels, out_channels, 3, stride)
        self.norm2 = NormReLU(out_channels)
        self.conv2 = conv(out_channels, out_channels, 3)
        changes_shape = stride != 1 or in_channels != out_channels
        self.shortcut = conv(in_channels, out_channels, 1, stride) if changes_shape else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, C_in, H, W) to (B, C_out, H / stride, W / stride)."""
        active = self.norm1(x)
        residual = self.conv2(self.norm2(self.conv1(active)))
        return residual + (x if self.shortcut is None else self.shortcut(active))


class ResNetBackbone(nn.Module):
    """A 3×3 stem of 16 channels and three stages; the second and the third halve the image.

    Args:
        in_channels: channels of an image.
        blocks: residual blocks of each stage.
        widths: channels of each stage.
    """

    STRIDE = 4
    """Ratio of an image's side to that of its feature maps, which is rounded up."""

    def __init__(
        self,
        in_channels: int,
        blocks: tuple[int, int, int] = (8, 8, 8),
        widths: tuple[int, int, int] = (16, 32, 64),
    ) -> None:
        super().__init__()
        require_sizes("blocks", blocks, 3)
        require_sizes("widths", widths, 3)
        self.out_channels = widths[-1]
        self.stem = nn.Sequential(conv(in_channels, STEM_WIDTH, 3), NormReLU(STEM_WIDTH))
        self.stages = nn.Sequential()
        channels = STEM_WIDTH
        for stage, (depth, width) in enumerate(zip(blocks, widths, strict=True)):
            for index in range(depth):
                first = index == 0
                stride = 2 if first and stage > 0 else 1
                self.stages.append(BasicBlock(channels, width, stride, preactivated=first and stage == 0))
                channels = width
        self.norm = NormReLU(channels)

    def forward(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, widths[-1], ⌈H/4⌉, ⌈W/4⌉)."""
        return self.norm(self.stages(self.stem(images)))

    def out_size(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the feature maps of an image."""
        height, width = (-(-side // self.STRIDE) for side in image_size)
        return height, width


def conv(in_channels: int, out_channels: int, kernel_size: int, stride: int = 1) -> nn.Conv2d:
    """Convolution without bias, padded to keep the size up to its stride, with He's normal initialisation."""
    layer = nn.Conv2d(in_channels, out_channels, kernel_size, stride, kernel_size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return layer
