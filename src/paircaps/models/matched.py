"""Pooling networks of the size of a capsule network: without them a capsule result proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from paircaps.models.base import ImageModel, count_parameters

Pool = TypeVar("Pool", bound=ImageModel)


def as_large_as(build: Callable[..., Pool], build_twin: Callable[[], ImageModel]) -> Pool:
    """The network whose number of parameters is nearest to that of another one.

    Args:
        build: makes the network of a ``head_width``, in which the number of its parameters is linear.
        build_twin: makes the other one.
    """
    with torch.device("meta"):  # shapes only: nothing is allocated, and no random number drawn
        wanted = count_parameters(build_twin())
        one, two = (count_parameters(build(head_width=width)) for width in (1, 2))
    return build(head_width=max(1, 1 + round((wanted - one) / (two - one))))


def pooling_twin(name: str) -> str:
    """The name of the pooling network that belongs to a registered capsule network."""
    return name.replace("resnet-caps", "resnet-pool").replace("capsnet", "capsnet-pool")
