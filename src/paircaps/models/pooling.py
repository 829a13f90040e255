"""Pooling networks: the baselines of capsule networks, with the same backbone and the same number of parameters.

Without them a result of capsules shows little: the backbone or the number of parameters may be the reason for it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn

from paircaps._utils.bounded_build import shapes_only
from paircaps._utils.registry import call_with_options
from paircaps.functional import Capsules
from paircaps.models.base import ImageModel, count_parameters
from paircaps.routing import RoutingFactory

Twin = TypeVar("Twin", bound=ImageModel)


class PoolingModel(ImageModel):
    """Base class of pooling networks, the baselines of capsule networks: feature maps, pooling, a linear layer.

    All classes have the same pose, the pooled features. The activation is the logit.
    """

    classify: nn.Linear
    """Linear layer from the pooled features to the logits of the classes."""

    @abstractmethod
    def maps(self, images: Tensor) -> Tensor:
        """(B, C, H, W) to feature maps of (B, K, H', W')."""

    @property
    def takes_any_size(self) -> bool:
        """Always True, since features are pooled over all positions, however many there are."""
        return True

    def pool(self, maps: Tensor) -> Tensor:
        """Feature maps (B, K, H', W') to features (B, K): the mean over all positions."""
        return maps.mean(dim=(-2, -1))

    def capsules(self, images: Tensor) -> Capsules:
        """(B, C, H, W) to features as capsules of (B, J, K), (B, J, K) and logits of (B, J)."""
        features = self.pool(self.maps(images))  # (B, K)
        pose = features.unsqueeze(-2).expand(-1, self.num_classes, -1)
        return Capsules(pose, pose, self.classify(features))


def with_parameters_of_twin(
    pool: Callable[..., Twin], twin: Callable[..., ImageModel], common: Sequence[str]
) -> Callable[..., Twin]:
    """Factory of a network without capsules whose number of parameters is nearest to that of its capsule twin.

    Args:
        pool: builds the network from a ``head_width``, in which its number of parameters is linear.
        twin: builds the capsule network; the factory takes its arguments.
        common: names of the options that both have.
    """

    def build(
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        routing: str | RoutingFactory = "fm",
        **overrides: Any,
    ) -> Twin:
        shared = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
        make = partial(pool, **shared, **{name: overrides[name] for name in common if name in overrides})
        with shapes_only():
            other = call_with_options("the capsule twin", twin, {**shared, "routing": routing}, overrides)
            one, two = (count_parameters(make(head_width=width)) for width in (1, 2))
        return make(head_width=max(1, 1 + round((count_parameters(other) - one) / (two - one))))

    return build
