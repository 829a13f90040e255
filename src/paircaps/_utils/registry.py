"""Registries: factories by name. Routings, models, datasets and recipes each have one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Generic, TypeVar

from paircaps._utils.plugins import load_installed_plugins, note_use, plugin_of

T = TypeVar("T")


class Registry(Generic[T]):
    """Factories by name: those of this package, and those of plug-ins, which are imported when they are needed.

    Args:
        kind: what is registered, in one word, for messages: ``"routing"``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._factories: dict[str, Callable[..., T]] = {}
        self._plugins: dict[str, str | None] = {}

    def register(self, name: str, factory: Callable[..., T]) -> None:
        """Add a factory under a new name."""
        if not isinstance(name, str) or not name or not callable(factory):
            raise TypeError(f"a {self.kind} is registered by a name and a callable, got {name!r} and {factory!r}")
        if name in self._factories:
            raise ValueError(f"{self.kind} {name!r} is already registered, as {self._factories[name]!r}")
        self._factories[name] = factory
        self._plugins[name] = plugin_of(factory)

    def names(self) -> list[str]:
        """All names, sorted."""
        load_installed_plugins()
        return sorted(self._factories)

    def __contains__(self, name: object) -> bool:
        """True if something is registered under a name; plug-ins are imported only if it is unknown without them."""
        if name not in self._factories:
            load_installed_plugins()
        return name in self._factories

    def factory(self, name: str) -> Callable[..., T]:
        """The factory of a name; an unknown name raises an error that lists the known ones."""
        if not isinstance(name, str):
            raise TypeError(f"a {self.kind} is named by a string, got {name!r}. Known: {', '.join(self.names())}")
        if name in self:
            note_use(self._plugins[name])
            return self._factories[name]
        raise unknown_name(self.kind, name, self.names())


def unknown_name(kind: str, name: str, known: Collection[str]) -> ValueError:
    """Error for an unknown name, with the nearest known name and all known ones."""
    near = get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ValueError(f"unknown {kind} {name!r}{hint} Known: {', '.join(known)}")


def call_with_options(
    what: str, factory: Callable[..., T], arguments: dict[str, object], options: dict[str, object]
) -> T:
    """Return ``factory(**arguments, **options)``; an unknown option raises an error that lists the known ones."""
    parameters = inspect.signature(factory).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        allowed = [name for name in parameters if name not in arguments]
        for name in options:
            if name not in allowed:
                raise TypeError(f"{what} has no option {name!r}; it takes {', '.join(allowed) or 'none'}")
    return factory(**arguments, **options)
