"""Capsule networks by pairwise agreement.

``functional`` holds the paper's equations, ``routing`` the three algorithms, ``layers`` the capsule layers,
``create_model`` every network of the paper, ``load`` a trained network, ``testing`` what a new routing must pass.
Above this library, with more dependencies: ``data`` has the datasets, ``training`` the training loop.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paircaps import data, functional, testing
    from paircaps.functional import Capsules
    from paircaps.layers import CapsuleLayer, ConvCapsuleLayer, PrimaryCapsules, settle
    from paircaps.model_files import load
    from paircaps.models import (
        CapsNet,
        DeconvDecoder,
        DenseDecoder,
        ResNetCapsules,
        ResNetGridCapsules,
        ResNetPool,
        count_parameters,
        create_model,
        list_models,
        register_model,
    )
    from paircaps.routing import (
        DynamicRouting,
        EMRouting,
        FMAgreement,
        Routing,
        create_routing,
        list_routings,
        register_routing,
    )
    from paircaps.votes.kernels.choice import kernels

__version__ = "0.1.0"

__all__ = [
    "CapsNet",
    "CapsuleLayer",
    "Capsules",
    "ConvCapsuleLayer",
    "DeconvDecoder",
    "DenseDecoder",
    "DynamicRouting",
    "EMRouting",
    "FMAgreement",
    "PrimaryCapsules",
    "ResNetCapsules",
    "ResNetGridCapsules",
    "ResNetPool",
    "Routing",
    "count_parameters",
    "create_model",
    "create_routing",
    "data",
    "functional",
    "kernels",
    "list_models",
    "list_routings",
    "load",
    "register_model",
    "register_routing",
    "settle",
    "testing",
]

_MODULES = ("functional", "layers", "model_files", "models", "routing", "votes.kernels.choice")
"""Where the public names that are no modules come from."""


def __getattr__(name: str) -> Any:
    """Import a module or a public name when it is first used.

    PyTorch takes seconds to load, so ``import paircaps`` alone does not load it: the command line can answer
    ``--help`` at once, and listens to Ctrl-C while PyTorch loads.
    """
    if not name.startswith("_") and find_spec(f"paircaps.{name}"):
        return import_module(f"paircaps.{name}")
    if name in __all__:
        for module in map(import_module, (f"paircaps.{module}" for module in _MODULES)):
            if hasattr(module, name):
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module 'paircaps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
