"""Look inside: how a thing is there, where the agreement on it comes from, and how well poses follow the world.

Functions return tensors; ``drawn`` turns what they return into pictures.
"""

from __future__ import annotations

from paircaps.explain.agreement import Agreement, agreement
from paircaps.explain.equivariance import Equivariance, measure
from paircaps.explain.perturb import DimensionRanges, Perturbation, perturb, pose_range
from paircaps.explain.reconstruct import Reconstruction, reconstruct
from paircaps.explain.trace import Look, look
from paircaps.explain.tree import AgreementTree, tree
from paircaps.explain.warps import upright

__all__ = [
    "Agreement",
    "AgreementTree",
    "DimensionRanges",
    "Equivariance",
    "Look",
    "Perturbation",
    "Reconstruction",
    "agreement",
    "look",
    "measure",
    "perturb",
    "pose_range",
    "reconstruct",
    "tree",
    "upright",
]
