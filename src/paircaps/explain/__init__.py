"""Inspection of trained networks: reconstructions, pose dimensions, agreement, parse trees, masks and equivariance.

Functions return tensors; :mod:`paircaps.explain.plots` draws what they return.
"""

from __future__ import annotations

from paircaps.explain.agreement import Agreement, agreement
from paircaps.explain.dimensions import Dimension, measure_dimensions
from paircaps.explain.equivariance import Equivariance, measure_equivariance
from paircaps.explain.focus import focus
from paircaps.explain.masks import FoundMasks, find_masks
from paircaps.explain.perturb import DimensionRanges, Perturbation, dimension_ranges, perturb
from paircaps.explain.reconstruct import Reconstruction, reconstruct
from paircaps.explain.trace import Trace, trace
from paircaps.explain.tree import AgreementTree, Level, tree
from paircaps.explain.warps import UprightImages, upright_images

__all__ = [
    "Agreement",
    "AgreementTree",
    "Dimension",
    "DimensionRanges",
    "Equivariance",
    "FoundMasks",
    "Level",
    "Perturbation",
    "Reconstruction",
    "Trace",
    "UprightImages",
    "agreement",
    "dimension_ranges",
    "find_masks",
    "focus",
    "measure_dimensions",
    "measure_equivariance",
    "perturb",
    "reconstruct",
    "trace",
    "tree",
    "upright_images",
]
