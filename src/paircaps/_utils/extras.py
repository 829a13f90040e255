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
EXTRAS = {
    "train": _TRAIN,
    "serve": (*_TRAIN, "fastapi", "python_multipart", "uvicorn"),
    "tensorboard": (*_TRAIN, "tensorboard"),
    "export": (*_TRAIN, "onnx", "onnxruntime", "onnxscript"),
    "hub": ("huggingface_hub",),
}
"""Modules of the extras; pyproject.toml has their versions."""


def require_extra(purpose: str, *modules: str, extra: str = "train") -> None:
    """Refuse to go on where a package is not installed; to be called before the package is imported.

    Args:
        purpose: what needs the packages, for the message: ``"drawing figures"``.
        modules: names of their top-level modules; without them, all of the extra.
        extra: extra of paircaps that brings them.

    Raises:
        MissingExtraError: with the command that installs what is missing.
    """
    missing = missing_packages(extra, *modules)
    if missing:
        raise MissingExtraError(_sentence(purpose, missing, extra))


def missing_packages(extra: str, *modules: str) -> list[str]:
    """Distributions of an extra that are not installed.

    Args:
        extra: name of the extra.
        modules: names of top-level modules to look for; without them, all of the extra.
    """
    missing = [module for module in modules or EXTRAS[extra] if not _is_installed(module)]
    return [_distribution(module) for module in missing]


@contextmanager
def extra_imports(purpose: str, extra: str = "train") -> Iterator[None]:
    """Turn the failure of the imports in its block into the same error, for imports at the top of a file."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = _distribution((error.name or "a package").split(".")[0])
        raise MissingExtraError(_sentence(purpose, [package], extra)) from None


def _distribution(module: str) -> str:
    """Name by which pip knows a module."""
    return _DISTRIBUTIONS.get(module, module.replace("_", "-"))


def _sentence(purpose: str, distributions: list[str], extra: str) -> str:
    verb = "is" if len(distributions) == 1 else "are"
    return f"{purpose} needs {', '.join(distributions)}, which {verb} not installed: pip install 'paircaps[{extra}]'"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
