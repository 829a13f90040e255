"""Registry of models: factories by name, and the routing and the pooling twin of each capsule network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from paircaps._utils.registry import Registry, call_with_options
from paircaps.errors import PaircapsError
from paircaps.layers.norms import MOMENTUM, set_norm_momentum
from paircaps.models.base import ImageModel
from paircaps.models.pretrained import PretrainedWeights
from paircaps.routing import RoutingFactory

T = TypeVar("T")

_MODELS: Registry[ImageModel] = Registry("model")
_POOLING_TWINS: dict[str, str] = {}
_ROUTINGS: dict[str, str] = {}

_USUAL = {"num_classes": 10, "in_channels": 1, "image_size": 28, "routing": "auto"}
"""Arguments that every model has, with the values that they have where none is given."""

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
    num_classes: int | None = None,
    in_channels: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    routing: str | RoutingFactory = AUTO,
    norm_momentum: float | None = None,
    pretrained: str | Path | None = None,
    **overrides: object,
) -> ImageModel:
    """Build a model by its name, with fresh weights or those of a trained network.

    >>> import torch
    >>> model = create_model("resnet-caps-small", in_channels=3, image_size=32)
    >>> capsules = model(torch.rand(8, 3, 32, 32))
    >>> capsules.activation.shape, capsules.pose.shape
    (torch.Size([8, 10]), torch.Size([8, 10, 16]))
    >>> predicted = capsules.activation.argmax(-1)

    With ``pretrained``, arguments that are not given are those of the trained network; those that are given must fit
    it. Its classes and the preparation of its images are in the network that :func:`paircaps.load` returns.

    >>> model = create_model("resnet-caps-small", pretrained="glyphs")

    Args:
        name: one of :func:`list_models`.
        num_classes: capsules of the last layer; 10 if None.
        in_channels: channels of an image; 1 if None.
        image_size: side of an image, or (height, width); 28 if None.
        routing: a registered name, or a factory; ``"auto"`` takes the one that the model is published with. A pooling
            baseline has none; it is sized to match the capsule network that has this one.
        norm_momentum: weight of a new batch in the running statistics of every batch norm; the paper's, 0.01, if None.
        pretrained: a network that comes with the project (``paircaps weights`` lists them), or the folder of a trained
            one, whose weights the model gets; None for fresh ones.
        overrides: any other argument of the model, such as ``blocks=(4, 4, 4)`` or
            ``routing_options={"iterations": 1}``.

    Returns:
        the model, from images (B, C, H, W) to :class:`paircaps.Capsules` of the classes.

    Raises:
        ValueError: if no model has that name, an argument is out of its range, or one does not fit ``pretrained``.
        TypeError: if the model has no such argument.
        ModelFileError: if there are no such weights, or their files are damaged.
    """
    asked = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
    given = {key: value for key, value in asked.items() if value is not None}
    given |= {} if _is_auto(routing) else {"routing": routing}
    given |= {} if norm_momentum is None else {"norm_momentum": norm_momentum}
    _MODELS.factory(name)  # raises if nothing has this name
    if pretrained is None:
        return _build(name, {**given, **overrides})
    weights = PretrainedWeights.read(pretrained)
    weights.require_fit(name, given)
    model = _build(name, {**weights.arguments, **given, **overrides})
    weights.fill(model, {**given, **overrides})
    return model


def _build(name: str, given: dict[str, object]) -> ImageModel:
    """Build a model with fresh weights, with the usual value of every argument that is not given."""
    options = {**_USUAL, "norm_momentum": MOMENTUM, **given}
    momentum = options.pop("norm_momentum")
    arguments = {key: options.pop(key) for key in _USUAL}
    arguments["routing"] = resolve_routing(name, arguments["routing"])
    model = call_with_options(f"model {name!r}", _MODELS.factory(name), arguments, options)
    set_norm_momentum(model, momentum)  # pyright: ignore[reportArgumentType]  # checks it
    return model
