"""Figures of what :mod:`paircaps.explain` returns; each function returns the content of a PNG file."""

from __future__ import annotations

from paircaps.explain.plots.agreement import draw_agreement
from paircaps.explain.plots.equivariance import draw_equivariance
from paircaps.explain.plots.masks import draw_masks
from paircaps.explain.plots.perturb import draw_perturbation
from paircaps.explain.plots.reconstruct import draw_reconstruction
from paircaps.explain.plots.tree import draw_tree

__all__ = [
    "draw_agreement",
    "draw_equivariance",
    "draw_masks",
    "draw_perturbation",
    "draw_reconstruction",
    "draw_tree",
]
