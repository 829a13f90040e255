"""Models by name."""

from __future__ import annotations

from collections.abc import Callable

from paircaps._utils.registry import Registry, call_with_options
from paircaps.models.base import ImageModel
from paircaps.routing import RoutingFactory

_MODELS: Registry[ImageModel] = Registry("model")


def register_model(name: str, factory: Callable[..., ImageModel]) -> None:
    """Make a model known by name; a name can be taken once."""
    _MODELS.register(name, factory)


def list_models() -> list[str]:
    """Names of all registered models."""
    return _MODELS.names()


def is_model(name: str) -> bool:
    """True if a model is registered under that name."""
    return name in _MODELS


def create_model(
    name: str,
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: int | tuple[int, int] = 28,
    routing: str | RoutingFactory = "fm",
    **overrides: object,
) -> ImageModel:
    """Build a model.

    Args:
        name: one of :func:`list_models`.
        num_classes: capsules of the last layer.
        in_channels: of an image.
        image_size: its side, or (height, width).
        routing: a registered name, or a factory. A pooling baseline has none; it is sized to match the capsule
            network that has this one.
        overrides: any other argument of the model, such as ``blocks=(4, 4, 4)`` or
            ``routing_options={"iterations": 1}``.
    """
    arguments = {
        "num_classes": num_classes,
        "in_channels": in_channels,
        "image_size": image_size,
        "routing": routing,
    }
    return call_with_options(f"model {name!r}", _MODELS.factory(name), arguments, overrides)
