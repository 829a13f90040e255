"""Parse tree of an image: the strongest children of a class capsule, their strongest children, and so on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.checks import require_positive
from paircaps.explain.trace import Trace, choose_classes, trace
from paircaps.network import Network
from paircaps.routing.evidence import of_parent

BRANCHES = {1: 8, 2: 4}
"""Children shown of each capsule, by the number of capsule layers; 3 where there are more layers."""


@dataclass(frozen=True)
class Level:
    """Capsules of one layer that are in the tree.

    Args:
        capsules: their indices in the layer, (N,), ordered from left to right as they lie in the image.
        share: share of each in the activation of the class, (N,).
        links: share of each (row) in the activation of each capsule of the level above (column), (N, M); zero where it
            is not one of the children shown of that capsule.
        places: their positions in the image, x and y in pixels, (N, 2).
    """

    capsules: Tensor
    share: Tensor
    links: Tensor
    places: Tensor


@dataclass(frozen=True)
class AgreementTree:
    """Strongest contributions to one class capsule, layer by layer.

    Args:
        image: the image as the network sees it, (C, H, W) in 0..1.
        label: the class at the top.
        activation: activation of that class.
        levels: levels from the class down to the primary capsules.
    """

    image: Tensor
    label: int
    activation: float
    levels: tuple[Level, ...]


@torch.no_grad()
def tree(network: Network, image: Tensor, label: int | None = None, branches: int | None = None) -> AgreementTree:
    """Follow the strongest shares from a class down to the primary capsules.

    Args:
        network: a trained network.
        image: the image as the network takes it, (C, H, W).
        label: the class; None takes the most active one.
        branches: children shown of each capsule; None takes 8, 4 or 3 for one, two or more capsule layers.

    Raises:
        PaircapsError: if the network has no capsules, or its routing does not report what children contributed.
    """
    if image.dim() != 3:
        raise ValueError(f"a tree is of one image, (channels, height, width), got shape {tuple(image.shape)}")
    if branches is not None:
        require_positive(branches=branches)
    return tree_from_trace(trace(network, image.unsqueeze(0)), label, branches)


def tree_from_trace(traced: Trace, label: int | None = None, branches: int | None = None) -> AgreementTree:
    """Like :func:`tree`, from a trace of one image that is there already."""
    chosen = choose_classes(traced.capsules, label)
    branches = branches or BRANCHES.get(len(traced.evidence), 3)
    activation = of_parent(traced.capsules.activation, chosen, -1)
    top = traced.places(len(traced.evidence))[0][chosen]
    # the top is the class alone; each level below has the strongest children of the level above it
    levels = [Level(chosen, activation, activation.new_zeros(1, 0), top)]
    shares = traced.shares(chosen)
    for depth in reversed(range(len(traced.evidence))):
        links = traced.evidence[depth].share[0][:, levels[-1].capsules]  # (I, M)
        levels.append(_level_below(links, shares[depth][0], traced.places(depth)[0], branches))
    return AgreementTree(traced.images[0], int(chosen), float(activation), tuple(levels))


def _level_below(links: Tensor, share: Tensor, places: Tensor, branches: int) -> Level:
    """Level of the strongest children of the level above, each child once, ordered from left to right.

    Args:
        links: share of every child in every capsule of the level above, (I, M).
        share: share of every child in the activation of the class, (I,).
        places: positions of all children, (I, 2).
        branches: children kept of each capsule above.
    """
    strongest = links.abs().topk(min(branches, len(links)), dim=0).indices  # (branches, M)
    shown = torch.zeros_like(links, dtype=torch.bool).scatter_(0, strongest, True)
    kept = shown.any(dim=1).nonzero().flatten()
    kept = kept[places[kept, 0].argsort(stable=True)]
    return Level(kept, share[kept], torch.where(shown, links, 0)[kept], places[kept])
