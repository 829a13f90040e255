"""What every model of capsules is: features, primary capsules, capsule layers."""

from __future__ import annotations

from abc import abstractmethod
from itertools import accumulate

from torch import Tensor, nn

from paircaps.functional import Capsules
from paircaps.layers import PrimaryCapsules
from paircaps.models.base import ImageModel
from paircaps.models.stack import is_bounded


class CapsuleModel(ImageModel):
    """Images to feature maps, to primary capsules, to one capsule layer after the other."""

    primary: PrimaryCapsules
    layers: nn.Sequential

    FIELD: tuple[float, float]
    """Where a feature lies in the image: step from one to the next, and middle of the first, in pixels."""

    @abstractmethod
    def features(self, images: Tensor) -> Tensor:
        """(B, C, H, W) to feature maps."""

    @property
    def bounded(self) -> bool:
        """As the routing of the last layer says."""
        return is_bounded(self.layers)

    def capsules(self, images: Tensor) -> Capsules:
        """(B, C, H, W) to capsules of (B, J, K), (B, J, K) and (B, J)."""
        return self.layers(self.primary(self.features(images)))

    def ascend(self, images: Tensor) -> list[Capsules]:
        """(B, C, H, W) to the capsules of every layer, the primary ones first, those of the classes last."""
        return list(
            accumulate(self.layers, lambda below, layer: layer(below), initial=self.primary(self.features(images)))
        )

    def centres(self) -> Tensor:
        """Where in the image each primary capsule looks: x and y of its middle in pixels, (I, 2)."""
        return self.primary.centres(*self.FIELD)
