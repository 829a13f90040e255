"""Several capsule layers, one on the other."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from paircaps._utils.checks import require_sizes
from paircaps.layers import CapsuleLayer, PrimaryCapsules
from paircaps.routing import Routing, RoutingFactory


def capsule_stack(
    primary: PrimaryCapsules,
    hidden: Sequence[int],
    num_classes: int,
    *,
    pose_dim: int,
    transform: str,
    routing: str | RoutingFactory,
    routing_options: dict[str, object] | None,
    vote_norm: str | None,
    streaming: bool | str,
) -> nn.Sequential:
    """Layers of ``hidden`` capsules and one of ``num_classes``, each with a routing of its own."""
    require_sizes("hidden_capsules", hidden)
    if isinstance(routing, nn.Module):
        raise TypeError(
            f"each capsule layer needs a routing of its own: give a name, a class or a factory, got {routing!r}"
        )
    layers = []
    in_capsules, in_dim = primary.out_capsules, primary.pose_dim
    for out_capsules in (*hidden, num_classes):
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
                streaming=streaming,
            )
        )
        in_capsules, in_dim = out_capsules, pose_dim
    return nn.Sequential(*layers)


def is_bounded(layers: nn.Sequential) -> bool:
    """Whether the activations of the last layer lie in 0..1; of a routing that does not say, they may not."""
    routing = layers[-1].get_submodule("routing")
    return isinstance(routing, Routing) and routing.bounded
