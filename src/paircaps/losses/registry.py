"""Registry of class losses: factories by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from paircaps._utils.registry import Registry, call_with_options
from paircaps.losses.base import ClassLoss

_LOSSES: Registry[ClassLoss] = Registry("loss")


def register_loss(name: str, factory: Callable[..., ClassLoss]) -> None:
    """Make a class loss known by name to recipes and the command line.

    Args:
        name: a new name, for ``loss.name`` of a recipe.
        factory: a subclass of :class:`paircaps.losses.ClassLoss`, whose arguments are the options of the loss.

    Raises:
        ValueError: if the name is taken.
    """
    if name == "auto":
        raise ValueError("a loss cannot be named 'auto', which stands for the one that fits")
    _LOSSES.register(name, factory)


def list_losses() -> list[str]:
    """Names of all registered class losses.

    >>> {"cross-entropy", "margin", "spread"} <= set(list_losses())  # plug-ins may add others
    True
    """
    return _LOSSES.names()


def is_loss(name: object) -> bool:
    """Whether a class loss is registered under that name.

    Args:
        name: the name.
    """
    return name in _LOSSES


def loss_factory(name: str) -> Callable[..., ClassLoss]:
    """What builds the class loss of a name; its attributes are those of the loss.

    Args:
        name: a registered name.
    """
    return _LOSSES.factory(name)


def takes_option(name: str, option: str) -> bool:
    """Whether the class loss of a name has an option.

    Args:
        name: a registered name.
        option: name of the option.
    """
    return option in inspect.signature(loss_factory(name)).parameters


def create_loss(name: str, options: Mapping[str, object]) -> ClassLoss:
    """Build a class loss by its name.

    Args:
        name: a registered name.
        options: options of that loss.

    Raises:
        TypeError: if the loss has no such option, or is no class loss.
    """
    loss = call_with_options(f"loss {name!r}", loss_factory(name), {}, dict(options))
    if not isinstance(loss, ClassLoss):
        raise TypeError(f"loss {name!r} was registered by a factory that gives {type(loss).__name__}, no ClassLoss")
    return loss


def follows_progress(name: str) -> bool:
    """Whether the class loss of a name changes over a training; False for a name that is not registered.

    Args:
        name: the name.
    """
    return is_loss(name) and bool(getattr(loss_factory(name), "follows_progress", False))
