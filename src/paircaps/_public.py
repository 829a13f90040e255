"""What ``import paircaps`` offers, in one place; ``paircaps`` itself imports it when it is first asked for."""

from __future__ import annotations

from paircaps import data, functional, testing
from paircaps.capsules import CapsuleLayer, PrimaryCapsules
from paircaps.functional import Capsules
from paircaps.model_files import load
from paircaps.models import (
    CapsNet,
    DeconvDecoder,
    DenseDecoder,
    ResNetCapsules,
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

__all__ = [
    "CapsNet",
    "CapsuleLayer",
    "Capsules",
    "DeconvDecoder",
    "DenseDecoder",
    "DynamicRouting",
    "EMRouting",
    "FMAgreement",
    "PrimaryCapsules",
    "ResNetCapsules",
    "ResNetPool",
    "Routing",
    "count_parameters",
    "create_model",
    "create_routing",
    "data",
    "functional",
    "list_models",
    "list_routings",
    "load",
    "register_model",
    "register_routing",
    "testing",
]
