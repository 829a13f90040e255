"""Routing, from votes to parent capsules: one algorithm per file, and their registry."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from paircaps._utils.registry import Registry, call_with_options
from paircaps.routing.base import Routing, VoteNeeds
from paircaps.routing.dynamic import DynamicRouting
from paircaps.routing.em import EMRouting
from paircaps.routing.evidence import Evidence
from paircaps.routing.fm import FMAgreement

__all__ = [
    "DynamicRouting",
    "EMRouting",
    "Evidence",
    "FMAgreement",
    "Routing",
    "RoutingFactory",
    "VoteNeeds",
    "create_routing",
    "is_routing",
    "list_routings",
    "register_routing",
]

RoutingFactory = Callable[..., nn.Module]
"""Builds a routing from ``out_capsules`` and options: a Routing class, or any function like it."""

_ROUTINGS: Registry[nn.Module] = Registry("routing")


def register_routing(name: str, factory: RoutingFactory) -> None:
    """Make a routing known by name to layers, models and recipes; a name can be taken once."""
    _ROUTINGS.register(name, factory)


def list_routings() -> list[str]:
    """Names of all registered routings."""
    return _ROUTINGS.names()


def is_routing(name: str) -> bool:
    """True if a routing is registered under that name."""
    return name in _ROUTINGS


def create_routing(name: str | RoutingFactory, out_capsules: int, **options: object) -> nn.Module:
    """Build a routing.

    Args:
        name: a registered name, or a factory that is not registered.
        out_capsules: J, the number of parents.
        options: options of that routing, such as ``iterations=2``.
    """
    factory = name if callable(name) else _ROUTINGS.factory(name)
    return call_with_options(f"routing {name!r}", factory, {"out_capsules": out_capsules}, options)


register_routing("fm", FMAgreement)
register_routing("dynamic", DynamicRouting)
register_routing("em", EMRouting)
