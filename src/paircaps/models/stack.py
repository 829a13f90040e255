"""Several capsule layers, one on the other."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from paircaps.capsules import CapsuleLayer, PrimaryCapsules
from paircaps.routing import RoutingFactory


def capsule_stack(
    primary: PrimaryCapsules,
    sizes: Sequence[int],
    *,
    pose_dim: int,
    transform: str,
    routing: str | RoutingFactory,
    routing_options: dict[str, object] | None,
    vote_norm: str | None,
) -> nn.Sequential:
    """Layers of ``sizes`` capsules above the primary ones, each with a routing of its own."""
    layers = []
    in_capsules, in_dim = primary.out_capsules, primary.pose_dim
    for out_capsules in sizes:
        layers.append(
            CapsuleLayer(
                in_capsules,
                out_capsules,
                pose_dim,
                in_dim,
                routing=routing,
                transform=transform,
                vote_norm=vote_norm,
                routing_options=routing_options,
            )
        )
        in_capsules, in_dim = out_capsules, pose_dim
    return nn.Sequential(*layers)
