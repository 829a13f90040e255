"""Check that the API reference has every public name, and that every public name has a docstring.

Public are the names in ``__all__`` of the modules below, and the methods and properties of public classes that have no
leading underscore. Each gap is a warning, and ``make docs`` fails on warnings.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.logging import getLogger

MODULES = [
    "paircaps",
    *("paircaps.functional", "paircaps.layers", "paircaps.votes", "paircaps.routing", "paircaps.models"),
    *("paircaps.network", "paircaps.model_files", "paircaps.pictures", "paircaps.losses", "paircaps.testing"),
    *("paircaps.data", "paircaps.training", "paircaps.training.recipes", "paircaps.training.compare"),
    *("paircaps.explain", "paircaps.explain.plots", "paircaps.errors"),
]
"""Modules with public names."""


def public_names(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Public names of a module with what they stand for; modules among them have a page of their own."""
    for name in module.__all__:
        value = getattr(module, name)
        if not isinstance(value, ModuleType):
            yield f"{module.__name__}.{name}", value


def is_described(value: object) -> bool:
    """Whether a class or a function has a docstring of its own; a constant or an alias of a type needs none."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return True
    return bool((value.__doc__ or "").strip())


def members_without_docstring(value: object) -> list[str]:
    """Public methods and properties that a class of paircaps defines itself and does not describe."""
    if not inspect.isclass(value):
        return []
    members = vars(value).items()
    return [
        name
        for name, member in members
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod)))
        and not (inspect.getdoc(getattr(value, name)) or "").strip()
    ]


def gaps(documented: set[str]) -> Iterator[str]:
    """Sentences that say what the reference or the docstrings lack.

    Args:
        documented: full names of the reference, as ``paircaps.CapsuleLayer``.
    """
    for name in MODULES:
        for full_name, value in public_names(import_module(name)):
            own_name = f"{getattr(value, '__module__', name)}.{getattr(value, '__qualname__', '')}"
            if not any(other in documented for other in (full_name, own_name, top_level_name(value))):
                yield f"{full_name} is public and missing in the API reference (docs/api)"
            if not is_described(value):
                yield f"{full_name} has no docstring"
            for member in members_without_docstring(value):
                yield f"{full_name}.{member} has no docstring"


def top_level_name(value: object) -> str:
    """Name of something in ``paircaps`` itself, where the reference describes what is exported twice."""
    return f"paircaps.{getattr(value, '__name__', '')}"


def check(app: Sphinx, environment: BuildEnvironment) -> None:
    """Warn of each gap."""
    documented = {name for name, *_ in environment.get_domain("py").get_objects()}
    for gap in gaps(documented):
        getLogger(__name__).warning(gap, type="public_names")


def setup(app: Sphinx) -> dict[str, bool]:
    """Check after all pages are read."""
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
