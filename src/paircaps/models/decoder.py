"""Decoders: images reconstructed from the poses of capsules (section 4.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import Tensor, nn

from paircaps._utils.checks import (
    height_and_width,
    require_positive,
    require_shape,
    require_sizes,
    require_tensor,
    shape_of,
)
from paircaps._utils.labels import explained, one_hot, require_indices
from paircaps.functional import Capsules
from paircaps.layers.norms import EPS, MOMENTUM


class Decoder(nn.Module, ABC):
    """Base class of decoders: modules that redraw each image from the pose of one capsule."""

    def forward(self, capsules: Capsules, label: Tensor | None = None) -> Tensor:
        """Reconstruct images.

        Args:
            capsules: output of a model, poses (B, J, K).
            label: class indices of the poses to decode: (B,), or (B, D) for D reconstructions an image; None takes the
                most active capsule.

        Returns:
            (B, C, H, W), or (B, D, C, H, W), in 0..1.
        """
        chosen = choose(capsules, label)
        return self.draw(capsules.pose, chosen)

    @abstractmethod
    def draw(self, pose: Tensor, chosen: Tensor) -> Tensor:
        """Reconstruct images from chosen poses.

        Args:
            pose: poses of all classes, (B, J, K).
            chosen: class indices of the poses to decode, (B,) or (B, D).

        Returns:
            (B, C, H, W) or (B, D, C, H, W), in 0..1.
        """


class PoseDecoder(Decoder):
    """Base class of decoders that read the chosen pose alone, and not of which class it is.

    Args:
        pose_dim: K of a pose.
    """

    layers: nn.Sequential
    """Layers from poses (N, K) to images (N, C, H, W)."""

    def __init__(self, pose_dim: int) -> None:
        super().__init__()
        require_positive(pose_dim=pose_dim)
        self.pose_dim = pose_dim

    def draw(self, pose: Tensor, chosen: Tensor) -> Tensor:
        """Reconstruct images from chosen poses: (B, J, K) and (B, [D]) to (B, [D,] C, H, W); see the base class."""
        if pose.shape[-1] != self.pose_dim:
            raise ValueError(f"expected poses of {self.pose_dim} dimensions, got {pose.shape[-1]}")
        picked = pick(pose, chosen)  # (B, [D,] K)
        return self.layers(picked.flatten(0, -2)).unflatten(0, picked.shape[:-1])


class DeconvDecoder(PoseDecoder):
    """The paper's decoder: one pose to an image, by transposed convolutions.

    >>> from paircaps import create_model
    >>> capsules = create_model("resnet-caps-small")(torch.rand(8, 1, 28, 28))
    >>> decoder = DeconvDecoder(pose_dim=16, image_size=28)
    >>> decoder(capsules).shape  # from the most active capsule of each image
    torch.Size([8, 1, 28, 28])
    >>> decoder(capsules, torch.arange(8)).shape  # from those of given classes
    torch.Size([8, 1, 28, 28])

    Args:
        pose_dim: K of a pose.
        image_size: side of the image, or (height, width).
        channels: channels of the image.
    """

    WIDTHS = (64, 32, 16)
    """Channels before each of the three transposed convolutions."""

    NEGATIVE_SLOPE = 0.3
    """Slope of the leaky ReLU below zero."""

    def __init__(self, pose_dim: int = 16, image_size: int | tuple[int, int] = 28, channels: int = 1) -> None:
        super().__init__(pose_dim)
        require_positive(channels=channels)
        full = height_and_width("image_size", image_size)
        half, base = _halved(full), _halved(_halved(full))
        first, second, third = self.WIDTHS
        features = base[0] * base[1] * first
        self.layers = nn.Sequential(
            nn.Linear(pose_dim, features),
            nn.BatchNorm1d(features, eps=EPS, momentum=MOMENTUM),
            nn.LeakyReLU(self.NEGATIVE_SLOPE),
            nn.Unflatten(-1, (first, *base)),
            nn.ConvTranspose2d(first, second, 5, padding=2),
            nn.BatchNorm2d(second, eps=EPS, momentum=MOMENTUM),
            nn.LeakyReLU(self.NEGATIVE_SLOPE),
            _doubling(second, third, base, half),
            nn.BatchNorm2d(third, eps=EPS, momentum=MOMENTUM),
            nn.LeakyReLU(self.NEGATIVE_SLOPE),
            _doubling(third, channels, half, full),
            nn.Sigmoid(),
        )


class DeepCapsDecoder(PoseDecoder):
    """The class-independent decoder of DeepCaps: one pose to an image, by transposed 3×3 convolutions.

    A dense layer makes maps of at most 8×8, the image's size halved until it is that small, and each transposed
    convolution of stride 2 doubles them. All classes share the decoder and it is not told which of them it draws, so a
    number of the pose has to mean the same in all. It is called as :class:`paircaps.DeconvDecoder` is.

    >>> decoder = DeepCapsDecoder(pose_dim=32, image_size=64, channels=3)
    >>> pose = torch.randn(8, 10, 32)
    >>> decoder(Capsules(pose, pose, torch.rand(8, 10))).shape
    torch.Size([8, 3, 64, 64])

    Args:
        pose_dim: K of a pose.
        image_size: side of the image, or (height, width).
        channels: channels of the image.
    """

    SMALLEST = 8
    """Largest side of the maps that the dense layer makes."""

    BASE_WIDTH, FIRST_WIDTH, LEAST_WIDTH = 16, 64, 8
    """Channels of these maps, of the first convolution, and the fewest; each doubling of the size halves them."""

    def __init__(self, pose_dim: int = 32, image_size: int | tuple[int, int] = 28, channels: int = 1) -> None:
        super().__init__(pose_dim)
        require_positive(channels=channels)
        sizes = [height_and_width("image_size", image_size)]
        while max(sizes[0]) > self.SMALLEST:
            sizes.insert(0, _halved(sizes[0]))
        width = self.FIRST_WIDTH
        self.layers = nn.Sequential(
            nn.Linear(pose_dim, self.BASE_WIDTH * sizes[0][0] * sizes[0][1]),
            nn.ReLU(),
            nn.Unflatten(-1, (self.BASE_WIDTH, *sizes[0])),
            nn.BatchNorm2d(self.BASE_WIDTH, eps=EPS, momentum=MOMENTUM),
            nn.ConvTranspose2d(self.BASE_WIDTH, width, 3, padding=1),
        )
        for small, large in pairwise(sizes):
            narrower = max(self.LEAST_WIDTH, width // 2)
            self.layers.append(_doubling(width, narrower, small, large, kernel_size=3))
            width = narrower
        self.layers.extend([nn.ConvTranspose2d(width, channels, 3, padding=1), nn.Sigmoid()])


class DenseDecoder(Decoder):
    """The decoder of the first CapsNet: dense layers from all poses, all but one of them set to zero, to an image.

    It is called as :class:`paircaps.DeconvDecoder` is.

    Args:
        num_classes: J, the number of capsules.
        pose_dim: K of a pose.
        image_size: side of the image, or (height, width).
        channels: channels of the image.
        widths: sizes of the hidden layers.
    """

    def __init__(
        self,
        num_classes: int = 10,
        pose_dim: int = 16,
        image_size: int | tuple[int, int] = 28,
        channels: int = 1,
        widths: tuple[int, ...] = (512, 1024),
    ) -> None:
        super().__init__()
        require_positive(num_classes=num_classes, pose_dim=pose_dim, channels=channels)
        require_sizes("widths", widths)
        self.num_classes = num_classes
        self.pose_dim = pose_dim
        height, width = height_and_width("image_size", image_size)
        self.layers = nn.Sequential()
        in_features = num_classes * pose_dim
        for out_features in widths:
            self.layers.extend([nn.Linear(in_features, out_features), nn.ReLU()])
            in_features = out_features
        self.layers.extend(
            [
                nn.Linear(in_features, channels * height * width),
                nn.Sigmoid(),
                nn.Unflatten(-1, (channels, height, width)),
            ]
        )

    def draw(self, pose: Tensor, chosen: Tensor) -> Tensor:
        """Reconstruct images from chosen poses: (B, J, K) and (B, [D]) to (B, [D,] C, H, W); see the base class."""
        require_shape("pose", pose, (pose.shape[0], self.num_classes, self.pose_dim), "one pose per class")
        pose = pose if chosen.dim() == 1 else pose.unsqueeze(1)  # (B, [1,] J, K)
        mask = one_hot(chosen, self.num_classes, pose.dtype).unsqueeze(-1)  # (B, [D,] J, 1)
        return self.layers(torch.where(mask == 1, pose, 0).flatten(-2))


def choose(capsules: Capsules, label: Tensor | None) -> Tensor:
    """Class indices of the capsules to decode, (B,) or (B, D): the labels, or without them the most active capsule."""
    if not isinstance(capsules, Capsules):
        raise TypeError(f"a decoder takes Capsules, got {type(capsules).__name__}")
    pose, activation = capsules.pose, capsules.activation
    require_tensor("pose", pose, "(batch, classes, pose_dim)", 3)
    if pose.dim() != 3:
        raise ValueError(f"poses must have shape (batch, classes, pose_dim), got {shape_of(pose)}")
    require_shape("activation", activation, pose.shape[:2], f"one value per capsule for poses of {shape_of(pose)}")
    if label is None:
        return activation.argmax(dim=-1)
    require_indices("label", label)
    if label.dim() not in (1, 2) or label.shape[0] != pose.shape[0]:
        raise ValueError(
            f"label must have shape ({pose.shape[0]},) or ({pose.shape[0]}, drawings) for poses of "
            f"{shape_of(pose)}, got {shape_of(label)}"
        )
    return label.long()


def select_pose(capsules: Capsules, label: Tensor | None = None) -> Tensor:
    """Pose of the labelled capsule, or of the most active one.

    Args:
        capsules: output of a model: poses (B, J, K), activations (B, J).
        label: class indices, (B,) or (B, D), or None.

    Returns:
        (B, K), or (B, D, K).
    """
    chosen = choose(capsules, label)
    return pick(capsules.pose, chosen)


def pick(pose: Tensor, chosen: Tensor) -> Tensor:
    """Chosen poses: all poses (B, J, K) and class indices (B, [D]) to (B, [D,] K)."""
    index = chosen.reshape(chosen.shape[0], -1, 1).expand(-1, -1, pose.shape[-1])
    with explained(chosen, pose.shape[-2]):
        return pose.gather(-2, index).reshape(*chosen.shape, pose.shape[-1])


def _halved(size: tuple[int, int]) -> tuple[int, int]:
    """Half of a height and width, rounded up."""
    height, width = size
    return -(-height // 2), -(-width // 2)


def _doubling(
    in_channels: int, out_channels: int, small: tuple[int, int], large: tuple[int, int], kernel_size: int = 5
) -> nn.ConvTranspose2d:
    """Transposed convolution of stride 2, its kernel odd, from a halved size to the full one, which may be odd."""
    # without output padding, n becomes 2n − 1
    extra = (large[0] - 2 * small[0] + 1, large[1] - 2 * small[1] + 1)
    return nn.ConvTranspose2d(in_channels, out_channels, kernel_size, 2, kernel_size // 2, output_padding=extra)
