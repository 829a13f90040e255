"""What was found, drawn: one file for each kind of picture, each returning the content of a PNG file."""

from __future__ import annotations

from paircaps.explain.drawn.agreement import draw_agreement
from paircaps.explain.drawn.equivariance import draw_equivariance
from paircaps.explain.drawn.perturb import draw_perturbation
from paircaps.explain.drawn.reconstruct import draw_reconstruction
from paircaps.explain.drawn.tree import draw_tree

__all__ = ["draw_agreement", "draw_equivariance", "draw_perturbation", "draw_reconstruction", "draw_tree"]
