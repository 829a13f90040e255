"""Named things that can be built by name: the routings and the models are two of these."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """Factories by name.

    Args:
        kind: what is registered, in one word, for messages: ``"routing"``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._factories: dict[str, Callable[..., T]] = {}

    def register(self, name: str, factory: Callable[..., T]) -> None:
        """Add a factory under a new name."""
        if not isinstance(name, str) or not callable(factory):
            raise TypeError(f"a {self.kind} is registered by a name and a callable, got {name!r} and {factory!r}")
        if name in self._factories:
            raise ValueError(f"{self.kind} {name!r} is already registered, as {self._factories[name]!r}")
        self._factories[name] = factory

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._factories)

    def factory(self, name: str) -> Callable[..., T]:
        """The factory of a name; an unknown name raises and lists the known ones."""
        if not isinstance(name, str):
            raise TypeError(f"a {self.kind} is named by a string, got {name!r}. Known: {', '.join(self.names())}")
        if name in self._factories:
            return self._factories[name]
        raise unknown_name(self.kind, name, self.names())


def unknown_name(kind: str, name: str, known: Collection[str]) -> ValueError:
    """The error for a name that nothing has: with the nearest one, and all there are."""
    near = get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ValueError(f"unknown {kind} {name!r}{hint} Known: {', '.join(known)}")


def require_known_name(kind: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is not among the known ones."""
    if name not in known:
        raise unknown_name(kind, name, known)


def call_with_options(
    what: str, factory: Callable[..., T], arguments: dict[str, object], options: dict[str, object]
) -> T:
    """Build ``factory(**arguments, **options)``; an option it does not take raises and lists those it does."""
    parameters = inspect.signature(factory).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        allowed = [name for name in parameters if name not in arguments]
        for name in options:
            if name not in allowed:
                raise TypeError(f"{what} has no option {name!r}; it takes {', '.join(allowed) or 'none'}")
    return factory(**arguments, **options)
