"""Look inside: how a thing is there, where the agreement on it comes from, and how well poses follow the world.

Functions return tensors; ``drawn`` turns what they return into pictures.
"""

from __future__ import annotations

from paircaps.explain.agreement import Agreement, agreement
from paircaps.explain.equivariance import Equivariance, measure
from paircaps.explain.look import Look, look
from paircaps.explain.perturb import Perturbation, PoseRange, perturb, pose_range
from paircaps.explain.reconstruct import Reconstruction, reconstruct
from paircaps.explain.tree import Tree, tree
from paircaps.explain.warps import upright

__all__ = [
    "Agreement",
    "Equivariance",
    "Look",
    "Perturbation",
    "PoseRange",
    "Reconstruction",
    "Tree",
    "agreement",
    "look",
    "measure",
    "perturb",
    "pose_range",
    "reconstruct",
    "tree",
    "upright",
]
