"""Base class of capsule networks: features, primary capsules, capsule layers."""

from __future__ import annotations

from abc import abstractmethod
from itertools import accumulate

from torch import Tensor, nn

from paircaps.functional import Capsules
from paircaps.layers import PrimaryCapsules
from paircaps.models.base import ImageModel
from paircaps.models.stack import is_bounded, loss_of_routing


class CapsuleModel(ImageModel):
    """Capsule network: images to feature maps, to primary capsules, to one capsule layer after the other."""

    primary: PrimaryCapsules
    """Layer from feature maps to the first capsules."""

    layers: nn.Sequential
    """Capsule layers above the primary capsules; the last one has a capsule for each class."""

    FIELD: tuple[float, float]
    """Distance of neighbouring features in the image, and centre of the first one, in pixels."""

    @abstractmethod
    def features(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) to the feature maps that the primary capsules read."""

    @property
    def bounded(self) -> bool:
        """Whether activations of the last layer's routing lie in 0..1."""
        return is_bounded(self.layers)

    @property
    def wanted_loss(self) -> str | None:
        """Class loss that the model asks for, else the one that the routing of the last layer asks for."""
        return self.preferred_loss or loss_of_routing(self.layers)

    def capsules(self, images: Tensor) -> Capsules:
        """(B, C, H, W) to capsules of (B, J, K), (B, J, K) and (B, J)."""
        return self.layers(self.primary(self.features(images)))

    def ascend(self, images: Tensor) -> list[Capsules]:
        """Capsules of every layer for images (B, C, H, W), from the primary capsules to those of the classes."""
        return list(
            accumulate(self.layers, lambda below, layer: layer(below), initial=self.primary(self.features(images)))
        )

    def centres(self, grid: tuple[int, int] | None = None) -> Tensor:
        """Centre of the receptive field of each primary capsule: x and y in pixels, (I, 2).

        Args:
            grid: rows and columns of the primary capsules; None for those of an image of the model's own size.
        """
        return self.primary.centres(*self.FIELD, grid)
