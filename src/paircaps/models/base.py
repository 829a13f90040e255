"""Base class of all models: images to capsules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from paircaps._utils.checks import height_and_width, require_positive, require_tensor, shape_of
from paircaps._utils.precision import autocast_enabled
from paircaps.functional import Capsules


class ImageModel(nn.Module, ABC):
    """Base class of models: images of one fixed size to one capsule per class.

    Args:
        num_classes: J, the number of classes.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width).
        minimum_size: the smallest side that the network can take.
    """

    pose_dim: int
    """K of the pose that the model returns for each class."""

    preferred_loss: ClassVar[str | None] = None
    """Class loss that ``loss.name = "auto"`` takes for this model, whatever its routing asks for; None leaves it to the
    routing."""

    def __init__(
        self, num_classes: int, in_channels: int, image_size: int | tuple[int, int], minimum_size: int
    ) -> None:
        super().__init__()
        require_positive(num_classes=num_classes, in_channels=in_channels)
        self.num_classes = num_classes
        self.in_channels = in_channels
        self.image_size = height_and_width("image_size", image_size)
        self.minimum_size = minimum_size
        if min(self.image_size) < minimum_size:
            height, width = self.image_size
            raise ValueError(
                f"an image of {height}×{width} is too small for {type(self).__name__}, which needs at least "
                f"{minimum_size}×{minimum_size}"
            )

    @property
    def bounded(self) -> bool:
        """Whether activations lie in 0..1; ``loss.name = "auto"`` then takes the margin loss."""
        return False

    @property
    def wanted_loss(self) -> str | None:
        """Class loss that the model, or else its routing, asks ``loss.name = "auto"`` for; None if neither does."""
        return self.preferred_loss

    @property
    def in_unit_cube(self) -> bool:
        """Whether poses lie in the unit cube, each coordinate in 0..1, as the centripetal loss needs them."""
        return False

    @property
    def takes_any_size(self) -> bool:
        """Whether the model also takes images of other sizes than its own, as trainings with ``train.sizes`` do."""
        return False

    def fit(self, images: Tensor) -> None:
        """Compute from training images what is not learned by steps, such as a whitening stem; most models do nothing.

        Args:
            images: training images (B, C, H, W), prepared as for a call.
        """

    def forward(self, images: Tensor) -> Capsules:
        """Capsules of the classes.

        Args:
            images: (B, C, H, W), of the precision of the model's weights.

        Returns:
            Capsules of (B, J, K), (B, J, K) and (B, J).

        Raises:
            ValueError: if the images have another size or another number of channels than the model.
            TypeError: if they have another precision, such as uint8.
        """
        self.require_images(images)
        return self.capsules(images)

    def require_images(self, images: Tensor) -> None:
        """Raise an error unless images have a shape and precision that the model takes.

        Args:
            images: (B, C, H, W), as for a call.
        """
        require_tensor("images", images, "(batch, channels, height, width)", 4)
        expected = (self.in_channels, *self.image_size)
        fits = images.dim() == 4 and images.shape[1] == self.in_channels
        if not fits or not self.takes(*images.shape[2:]):
            raise ValueError(f"images must have shape (batch, {str(expected)[1:]}, got {shape_of(images)}")
        dtype = next(self.parameters()).dtype
        if images.dtype != dtype and not autocast_enabled(images):
            raise TypeError(f"images are {images.dtype} and the model is {dtype}; convert one: images.to({dtype})")

    def takes(self, height: int, width: int) -> bool:
        """Whether images of a size can be computed on.

        Args:
            height: height of an image.
            width: width of an image.
        """
        if self.takes_any_size:
            return min(height, width) >= self.minimum_size
        return (height, width) == self.image_size

    @abstractmethod
    def capsules(self, images: Tensor) -> Capsules:
        """The network itself, on images whose shape was checked: (B, C, H, W) to capsules."""


def count_parameters(module: nn.Module) -> int:
    """Number of trainable values of a module.

    Args:
        module: a layer or a whole network.
    """
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
