"""Capsule networks by pairwise agreement.

``functional`` holds the paper's equations, ``routing`` the three algorithms, ``CapsuleLayer`` and
``PrimaryCapsules`` the layers, ``create_model`` every network of the paper, ``data`` the datasets, ``training`` the
loop, ``load`` a trained network, ``testing`` what a new routing must pass.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paircaps._public import *  # noqa: F403 # pyright: ignore[reportWildcardImportFromLibrary]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """A room or a public name, imported when it is first asked for.

    PyTorch takes seconds to load: the command has to listen to Ctrl-C before it does.
    """
    if not name.startswith("_") and find_spec(f"paircaps.{name}"):
        return import_module(f"paircaps.{name}")
    public = import_module("paircaps._public")
    if name == "__all__":
        return public.__all__
    if name not in public.__all__:
        raise AttributeError(f"module 'paircaps' has no attribute {name!r}")
    globals()[name] = getattr(public, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
