"""Registry of models: factories by name, and the routing and the pooling twin of each capsule network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from paircaps._utils.registry import Registry, call_with_options
from paircaps.errors import PaircapsError
from paircaps.layers.norms import MOMENTUM, set_norm_momentum
from paircaps.models.base import ImageModel
from paircaps.routing import RoutingFactory

T = TypeVar("T")

_MODELS: Registry[ImageModel] = Registry("model")
_POOLING_TWINS: dict[str, str] = {}
_ROUTINGS: dict[str, str] = {}

AUTO = "auto"
"""Routing of :func:`create_model` and of recipes that stands for the one a model is published with."""


def register_model(
    name: str, factory: Callable[..., ImageModel], *, pooling_twin: str | None = None, routing: str = "fm"
) -> None:
    """Make a model known by name to :func:`create_model`, recipes and the command line.

    Args:
        name: name in :func:`create_model`, recipes and saved files.
        factory: builds the model from ``num_classes``, ``in_channels``, ``image_size``, ``routing`` and its options.
        pooling_twin: name of the network with average pooling in place of capsules that it is compared with, which
            may be registered later; None if there is none.
        routing: name of the routing that the model is published with, which it has unless another one is asked for;
            it may be registered later. A pooling network has that of the capsule network whose twin it is.

    Raises:
        ValueError: if the name is taken.
    """
    if pooling_twin is not None and not isinstance(pooling_twin, str):
        raise TypeError(f"pooling_twin must be the name of a model or None, got {pooling_twin!r}")
    if not isinstance(routing, str) or _is_auto(routing):
        raise TypeError(f"routing must be the name of the routing that a model is published with, got {routing!r}")
    _MODELS.register(name, factory)
    _ROUTINGS[name] = routing
    if pooling_twin is not None:
        _POOLING_TWINS[name] = pooling_twin


def published_routing(name: str) -> str:
    """Name of the routing that a registered model is published with, which ``routing="auto"`` stands for.

    >>> published_routing("resnet-caps")
    'fm'

    Args:
        name: name of the model. A pooling network has no routing: its size is that of a capsule network with this one.

    Raises:
        ValueError: if no model has that name.
    """
    _MODELS.factory(name)  # raises if nothing has this name
    twin = next((capsules for capsules, pool in _POOLING_TWINS.items() if pool == name), name)
    return _ROUTINGS[twin]


def resolve_routing(name: str, asked: T) -> str | T:
    """The routing itself, or in place of ``"auto"`` the name of the one that the model is published with.

    Args:
        name: name of a registered model.
        asked: name of a routing, a factory, or ``"auto"``.
    """
    return published_routing(name) if _is_auto(asked) else asked


def _is_auto(asked: object) -> bool:
    return asked == AUTO


def pooling_twin(name: str) -> str:
    """Name of the pooling network that a registered capsule network is compared with.

    Args:
        name: name of the capsule network.

    Raises:
        PaircapsError: if none was registered with it.
        ValueError: if no model has that name.
    """
    _MODELS.factory(name)  # raises if nothing has this name
    if name not in _POOLING_TWINS:
        known = ", ".join(sorted(_POOLING_TWINS))
        raise PaircapsError(
            f"model {name!r} has no pooling twin; these have one: {known}. "
            "A model of your own is given one by register_model(name, factory, pooling_twin=...)"
        )
    _MODELS.factory(_POOLING_TWINS[name])
    return _POOLING_TWINS[name]


def is_pooling_twin(name: str) -> bool:
    """Whether a registered capsule network is compared with the network of that name, which has no routing.

    Args:
        name: name of a model.
    """
    return name in _POOLING_TWINS.values()


def list_models() -> list[str]:
    """Names of all registered models.

    >>> "resnet-caps-small" in list_models()
    True
    """
    return _MODELS.names()


def is_model(name: str) -> bool:
    """Whether a model is registered under that name.

    Args:
        name: the name.
    """
    return name in _MODELS


def create_model(
    name: str,
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: int | tuple[int, int] = 28,
    routing: str | RoutingFactory = AUTO,
    norm_momentum: float = MOMENTUM,
    **overrides: object,
) -> ImageModel:
    """Build a model by its name, with fresh weights.

    >>> import torch
    >>> model = create_model("resnet-caps-small", in_channels=3, image_size=32)
    >>> capsules = model(torch.rand(8, 3, 32, 32))
    >>> capsules.activation.shape, capsules.pose.shape
    (torch.Size([8, 10]), torch.Size([8, 10, 16]))
    >>> predicted = capsules.activation.argmax(-1)

    Args:
        name: one of :func:`list_models`.
        num_classes: capsules of the last layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width).
        routing: a registered name, or a factory; ``"auto"`` takes the one that the model is published with. A pooling
            baseline has none; it is sized to match the capsule network that has this one.
        norm_momentum: weight of a new batch in the running statistics of every batch norm; the paper's is 0.01.
        overrides: any other argument of the model, such as ``blocks=(4, 4, 4)`` or
            ``routing_options={"iterations": 1}``.

    Returns:
        the model, from images (B, C, H, W) to :class:`paircaps.Capsules` of the classes.

    Raises:
        ValueError: if no model has that name, or an argument is out of its range.
        TypeError: if the model has no such argument.
    """
    arguments = {
        "num_classes": num_classes,
        "in_channels": in_channels,
        "image_size": image_size,
        "routing": resolve_routing(name, routing),
    }
    model = call_with_options(f"model {name!r}", _MODELS.factory(name), arguments, overrides)
    set_norm_momentum(model, norm_momentum)
    return model
