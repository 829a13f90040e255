"""The fast body: a whitening stem and a few wide 3×3 convolutions, made for training within minutes on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_sizes
from paircaps.models.resnet import conv

STEMS = ("whitening", "conv")
"""Values of ``stem``: a frozen whitening of the training images' patches, or a convolution that is trained."""

MINIMUM_SIZE = 9
"""Least side of an image: the stem takes one pixel, and three poolings divide by eight."""

EPS = 1e-5


def gelu(features: Tensor) -> Tensor:
    """GELU of feature maps (B, C, H, W), in their memory format.

    On CPUs PyTorch has a kernel that takes 0.6 of the time, for tensors that are contiguous. Feature maps in
    channels_last become so by a view. Both kernels round almost all values of bfloat16 alike.
    """
    if features.stride(1) == 1 and not features.is_contiguous():  # channels_last, also under vmap
        return F.gelu(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return F.gelu(features)


class GELU(nn.GELU):
    """GELU of feature maps, fast in both memory formats; see :func:`gelu`."""

    def forward(self, input: Tensor) -> Tensor:
        """(B, C, H, W) to the same."""
        return gelu(input)


class WhiteningStem(nn.Module):
    """Frozen 2×2 convolution whose outputs are uncorrelated and of variance one on training images, then GELU.

    Its filters are the eigenvectors of the covariance of all 2×2 patches, divided by the root of their eigenvalues,
    each also with the opposite sign. Only the bias is trained. Until :meth:`fit` is called, each filter picks a pixel.

    Args:
        in_channels: channels of an image.
    """

    KERNEL = 2
    """Side of the convolution's kernel."""

    LEAST_VARIANCE = 5e-4
    """Share of the mean eigenvalue that is added to each, so that directions without variance are not blown up."""

    IMAGES_AT_A_TIME = 256
    """Images whose patches :meth:`fit` looks at together."""

    weight: Tensor
    """Filters, (C·8, C, 2, 2); a buffer, since they are not trained."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        values = in_channels * self.KERNEL**2
        self.in_channels, self.out_channels = in_channels, 2 * values
        self.register_buffer("weight", torch.empty(2 * values, in_channels, self.KERNEL, self.KERNEL))
        if not self.weight.is_meta:
            self.weight.copy_(self._filters(torch.eye(values)))
        self.bias = nn.Parameter(torch.zeros(self.out_channels))

    def _filters(self, rows: Tensor) -> Tensor:
        """Filters from the rows of a matrix (C·4, C·4), each also with the opposite sign: (C·8, C, 2, 2)."""
        return torch.cat([rows, -rows]).view(-1, self.in_channels, self.KERNEL, self.KERNEL)

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Set the filters and the bias from training images (B, C, H, W); images of one grey change nothing."""
        # mean and covariance of all patches, in float64, a few hundred images at a time
        values = self.out_channels // 2
        count, total, products = 0, torch.zeros(values).double(), torch.zeros(values, values).double()
        for some in images.split(self.IMAGES_AT_A_TIME):
            patches = F.unfold(some.double(), self.KERNEL).transpose(1, 2).reshape(-1, values).cpu()
            count, total, products = count + len(patches), total + patches.sum(0), products + patches.T @ patches
        mean = total / count
        covariance = products / count - mean.outer(mean)
        if covariance.trace() <= self.LEAST_VARIANCE**2:
            return

        # whitening: eigenvectors by falling eigenvalue; their sign is fixed by their largest entry
        eigenvalues, vectors = torch.linalg.eigh(covariance)
        rows = vectors.T.flip(0)
        rows = rows * rows.gather(1, rows.abs().argmax(1, keepdim=True)).sign()
        rows = rows / (eigenvalues.flip(0).clamp_min(0) + self.LEAST_VARIANCE * eigenvalues.mean()).sqrt()[:, None]
        filters = torch.cat([rows, -rows])
        self.weight.copy_(self._filters(rows))
        self.bias.copy_(-filters @ mean)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C·8, H − 1, W − 1)."""
        return gelu(F.conv2d(images, self.weight, self.bias))

    def extra_repr(self) -> str:
        """Channels, for print(model)."""
        return f"{self.in_channels} -> {self.out_channels}, frozen"


class ConvStem(nn.Module):
    """A 2×2 convolution with as many channels as the whitening stem, and GELU: the same, trained.

    Args:
        in_channels: channels of an image.
    """

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.out_channels = 2 * in_channels * WhiteningStem.KERNEL**2
        self.conv = nn.Conv2d(in_channels, self.out_channels, WhiteningStem.KERNEL)

    def fit(self, images: Tensor) -> None:
        """Nothing is fitted."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C·8, H − 1, W − 1)."""
        return gelu(self.conv(images))


class NormGELU(nn.Sequential):
    """Batch norm and GELU."""

    def __init__(self, channels: int) -> None:
        super().__init__(nn.BatchNorm2d(channels, eps=EPS), GELU())


class FastBackbone(nn.Module):
    """Stem and three groups of convolutions; each group first halves the image by max-pooling.

    A group is [3×3 convolution, max-pooling, batch norm, GELU, 3×3 convolution, batch norm, GELU]. The last group ends
    after its first half: its second convolution is that of the primary capsules, or of the pooling twin.

    Args:
        in_channels: channels of an image.
        widths: channels of each group.
        stem: ``"whitening"`` or ``"conv"``.
    """

    FIELD = (8.0, 4.5)
    """Distance of neighbouring features in the image, and centre of the first one, in pixels."""

    def __init__(self, in_channels: int, widths: tuple[int, int, int], stem: str) -> None:
        super().__init__()
        require_sizes("widths", widths, 3)
        require_choice("stem", stem, STEMS)
        self.out_channels = widths[-1]
        self.stem = WhiteningStem(in_channels) if stem == "whitening" else ConvStem(in_channels)
        self.groups = nn.Sequential()
        channels = self.stem.out_channels
        for number, width in enumerate(widths):
            halves = [conv(channels, width, 3), nn.MaxPool2d(2), NormGELU(width)]
            if number < len(widths) - 1:
                halves += [conv(width, width, 3), NormGELU(width)]
            self.groups.append(nn.Sequential(*halves))
            channels = width

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) to (B, widths[-1], ⌊(H − 1)/8⌋, ⌊(W − 1)/8⌋)."""
        return self.groups(self.stem(images))

    def out_size(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the feature maps of an image."""
        height, width = ((side - 1) // 8 for side in image_size)
        return height, width
