"""Stacks of capsule layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from paircaps._utils.checks import require_sizes
from paircaps.layers import CapsuleLayer, ConvCapsuleLayer, PrimaryCapsules
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
    share: str | None = None,
    coordinates: str | None = None,
    conv_kinds: Sequence[int] = (),
    hidden_options: dict[str, object] | None = None,
    fold_options: dict[str, object] | None = None,
    start: str = "layer",
) -> nn.Sequential:
    """Capsule layers, each with a routing of its own.

    Args:
        primary: layer below.
        hidden: number of capsules of each hidden layer.
        num_classes: number of capsules of the last layer.
        pose_dim: K of all capsules.
        transform: ``"matrix"`` or ``"vector"``.
        routing: a registered name, or a factory.
        routing_options: options of every layer's routing.
        vote_norm: ``"pose"``, ``"vote"`` or None.
        streaming: see CapsuleLayer.
        share: ``"position"`` if the vote matrices of the primary capsules are the same at all positions.
        coordinates: ``"add"``, ``"learned"`` or None, in the layer that folds the grid; see CapsuleLayer.
        conv_kinds: kinds of capsules of each convolutional capsule layer, below the others.
        hidden_options: further options of the routings below the last layer.
        fold_options: further options of the routing that folds the grid, below those of ``routing_options``.
        start: size of the first vote matrices of the layer that folds the grid; see CapsuleLayer.
    """
    require_sizes("hidden_capsules", hidden)
    require_sizes("conv_kinds", conv_kinds)
    require_own_routings(routing)
    layers: list[nn.Module] = []
    (height, width, kinds), in_dim = primary.out_grid, primary.pose_dim
    below = {**(routing_options or {}), **(hidden_options or {})}  # options of the layers below the last
    for out_kinds in conv_kinds:
        layers.append(
            ConvCapsuleLayer(
                kinds,
                out_kinds,
                kernel_size=3,
                padding=1,
                pose_dim=pose_dim,
                in_dim=in_dim,
                routing=routing,
                transform=transform,
                vote_norm=vote_norm,
                routing_options=below,
                streaming=streaming,
            )
        )
        kinds, in_dim = out_kinds, pose_dim
    in_capsules, fold = (height, width, kinds), fold_options or {}
    for number, out_capsules in enumerate((*hidden, num_classes)):
        options = below if number < len(hidden) else routing_options
        layers.append(
            CapsuleLayer(
                in_capsules,
                out_capsules,
                pose_dim,
                in_dim,
                routing=routing,
                transform=transform,
                vote_norm=vote_norm,
                routing_options={**fold, **(options or {})},
                streaming=streaming,
                share=share,
                coordinates=coordinates,
                start=start,
            )
        )
        in_capsules, in_dim, share, coordinates, fold, start = out_capsules, pose_dim, None, None, {}, "layer"
    return nn.Sequential(*layers)


def require_own_routings(routing: object) -> None:
    """Refuse a routing that is built already where several layers would share it.

    Args:
        routing: a registered name, a factory, or a routing.
    """
    if isinstance(routing, nn.Module):
        raise TypeError(
            f"each capsule layer needs a routing of its own: give a name, a class or a factory, got {routing!r}"
        )


def is_bounded(layers: nn.Sequential) -> bool:
    """Whether the activations of the last layer lie in 0..1; False for a routing that is no Routing."""
    routing = layers[-1].get_submodule("routing")
    return isinstance(routing, Routing) and routing.bounded


def loss_of_routing(layers: nn.Sequential) -> str | None:
    """Class loss that the routing of the last layer asks for; None if it asks for none, or is no Routing."""
    routing = layers[-1].get_submodule("routing")
    return routing.preferred_loss if isinstance(routing, Routing) else None
