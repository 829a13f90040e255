"""Routing, from votes to parent capsules: one algorithm per file, and their registry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from paircaps._utils.checks import require_choice
from paircaps._utils.registry import Registry, call_with_options
from paircaps.routing.attention import AttentionRouting
from paircaps.routing.base import LAYER_SIZES, Routing, SumOptions, VoteNeeds, at_every_position
from paircaps.routing.dynamic import DynamicRouting
from paircaps.routing.efficient import EfficientRouting
from paircaps.routing.em import EMRouting
from paircaps.routing.evidence import Evidence
from paircaps.routing.fm import FMAgreement
from paircaps.routing.heinsen import HeinsenRouting
from paircaps.routing.mean import MeanOfVotes
from paircaps.routing.self_routing import SelfRouting
from paircaps.routing.sum import SumOfVotes
from paircaps.routing.vb import VBRouting

__all__ = [
    "AttentionRouting",
    "DynamicRouting",
    "EMRouting",
    "EfficientRouting",
    "Evidence",
    "FMAgreement",
    "HeinsenRouting",
    "MeanOfVotes",
    "Routing",
    "RoutingFactory",
    "SelfRouting",
    "SumOfVotes",
    "SumOptions",
    "VBRouting",
    "VoteNeeds",
    "at_every_position",
    "create_routing",
    "fold_options",
    "grid_options",
    "is_routing",
    "layer_sizes",
    "list_routings",
    "register_routing",
]

RoutingFactory = Callable[..., nn.Module]
"""What builds a routing from ``out_capsules`` and options, such as a subclass of Routing, or a function."""

_ROUTINGS: Registry[nn.Module] = Registry("routing")


def register_routing(name: str, factory: RoutingFactory) -> None:
    """Make a routing known by name to layers, models and recipes.

    Args:
        name: a new name, for ``CapsuleLayer(..., routing=name)`` and ``model.routing`` of a recipe.
        factory: a subclass of :class:`paircaps.Routing`, or a function of ``out_capsules`` and options like it.

    Raises:
        ValueError: if the name is taken, or is ``"auto"``, which stands for the routing that a model is published with.
    """
    if name == "auto":
        raise ValueError('no routing can be called "auto", which stands for the one that a model is published with')
    _ROUTINGS.register(name, factory)


def list_routings() -> list[str]:
    """Names of all registered routings.

    >>> {"fm", "dynamic", "em"} <= set(list_routings())  # plug-ins may add others
    True
    """
    return _ROUTINGS.names()


def is_routing(name: str) -> bool:
    """Whether a routing is registered under that name.

    Args:
        name: the name.
    """
    return name in _ROUTINGS


def grid_options(name: str | RoutingFactory) -> dict[str, object]:
    """Options with which a routing suits capsules on a grid; see :attr:`Routing.grid_options`.

    >>> grid_options("fm")
    {'weigh': 'activation'}

    Args:
        name: a registered name, or a factory that is not registered.
    """
    factory = name if callable(name) else _ROUTINGS.factory(name)
    return dict(getattr(factory, "grid_options", {}))


def fold_options(name: str | RoutingFactory) -> dict[str, object]:
    """Further options with which a routing suits a layer that folds a fine grid; see :attr:`Routing.fold_options`.

    >>> fold_options("fm")
    {'scale': 30.0}

    Args:
        name: a registered name, or a factory that is not registered.
    """
    factory = name if callable(name) else _ROUTINGS.factory(name)
    return dict(getattr(factory, "fold_options", {}))


def layer_sizes(name: str | RoutingFactory) -> tuple[str, ...]:
    """Sizes of its layer that a routing is built from; see :attr:`Routing.layer_sizes`.

    >>> layer_sizes("fm")
    ()

    Args:
        name: a registered name, or a factory that is not registered.

    Raises:
        ValueError: if it asks for a size that no layer has.
    """
    factory = name if callable(name) else _ROUTINGS.factory(name)
    while isinstance(factory, partial):  # options that are bound to a class do not change what it is built from
        factory = factory.func
    asked = tuple(getattr(factory, "layer_sizes", ()))
    for size in asked:
        require_choice("layer_sizes of a routing", size, LAYER_SIZES)
    return asked


def create_routing(name: str | RoutingFactory, out_capsules: int, **options: object) -> nn.Module:
    """Build a routing by its name.

    A :class:`paircaps.CapsuleLayer` builds its own; this is for layers of your own.

    >>> import torch
    >>> routing = create_routing("dynamic", out_capsules=10, iterations=2)
    >>> votes = torch.randn(8, 64, 10, 16)  # 8 images, 64 votes for each of 10 parents
    >>> routing(votes).activation.shape
    torch.Size([8, 10])

    Args:
        name: a registered name, or a factory that is not registered.
        out_capsules: J, the number of parents.
        options: options of that routing, such as ``iterations=2``, and the sizes of a layer that it is built from
            (:func:`paircaps.routing.layer_sizes`), such as ``in_capsules=64``.

    Returns:
        the routing, called as ``routing(votes, activation)``, or with the child capsules as a third argument if it
        reads them.

    Raises:
        ValueError: if the name is not known.
        TypeError: if the routing has no such option, or needs a size that is not given.
    """
    factory = name if callable(name) else _ROUTINGS.factory(name)
    asked = layer_sizes(name)
    missing = [size for size in asked if size not in options]
    if missing:
        raise TypeError(
            f"routing {name!r} is built from sizes of its layer: give {', '.join(f'{size}=...' for size in missing)}; "
            f"a CapsuleLayer gives them itself"
        )
    arguments: dict[str, object] = {"out_capsules": out_capsules, **{size: options.pop(size) for size in asked}}
    return call_with_options(f"routing {name!r}", factory, arguments, options)


register_routing("fm", FMAgreement)
register_routing("attention", AttentionRouting)
register_routing("dynamic", DynamicRouting)
register_routing("em", EMRouting)
register_routing("heinsen", HeinsenRouting)
register_routing("mean", MeanOfVotes)
register_routing("sum", SumOfVotes)
register_routing("efficient", EfficientRouting)
register_routing("self", SelfRouting)
register_routing("vb", VBRouting)
