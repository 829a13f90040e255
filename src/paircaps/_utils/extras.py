"""Packages that only the upper floor needs: a missing one is a sentence with the command that installs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from paircaps.errors import MissingExtraError

_DISTRIBUTIONS = {"PIL": "pillow"}
"""Distributions whose name is not that of their module."""

_TRAIN = (
    *("docstring_parser", "filelock", "jinja2", "jsonargparse", "matplotlib", "PIL", "pooch", "requests", "tqdm"),
)
EXTRAS = {"train": _TRAIN, "serve": (*_TRAIN, "fastapi", "python_multipart", "uvicorn")}
"""Modules of the extras that commands need; pyproject.toml has their versions."""


def require_extra(purpose: str, *modules: str, extra: str = "train") -> None:
    """Refuse to go on where a package is not installed; to be called before the package is imported.

    Args:
        purpose: what needs the packages, for the message: ``"drawing figures"``.
        modules: names of their top-level modules; without them, all of the extra.
        extra: extra of paircaps that brings them.

    Raises:
        MissingExtraError: with the command that installs what is missing.
    """
    missing = [module for module in modules or EXTRAS[extra] if not _is_installed(module)]
    if missing:
        raise MissingExtraError(_sentence(purpose, missing, extra))


@contextmanager
def extra_imports(purpose: str, extra: str = "train") -> Iterator[None]:
    """Turn the failure of the imports in its block into the same error, for imports at the top of a file."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(_sentence(purpose, [(error.name or "a package").split(".")[0]], extra)) from None


def _sentence(purpose: str, modules: list[str], extra: str) -> str:
    names = ", ".join(_DISTRIBUTIONS.get(module, module.replace("_", "-")) for module in modules)
    verb = "is" if len(modules) == 1 else "are"
    return f"{purpose} needs {names}, which {verb} not installed: pip install 'paircaps[{extra}]'"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
