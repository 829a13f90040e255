"""Which capsules of each layer feed which: the parse tree of an image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.checks import require_positive
from paircaps.explain.trace import Look, chosen_classes, look
from paircaps.network import Network
from paircaps.routing.evidence import of_parent

BRANCHES = {1: 8, 2: 4}
"""Children shown of a capsule, by the number of capsule layers; 3 where they are more."""


@dataclass(frozen=True)
class Level:
    """Capsules of one layer that are in the tree.

    Args:
        capsules: which ones, (N,), from left to right as they lie in the image.
        share: what each has of the activation of the class, (N,).
        links: what each (row) has of the activation of each capsule of the level above (column), (N, M); zero where
            it is not among those shown for it.
        places: where they are in the image, x and y in pixels, (N, 2).
    """

    capsules: Tensor
    share: Tensor
    links: Tensor
    places: Tensor


@dataclass(frozen=True)
class AgreementTree:
    """What one capsule is made of, layer by layer.

    Args:
        image: as the network sees it, (C, H, W) in 0..1.
        label: the class at the top.
        activation: of it.
        levels: from the class down to the primary capsules.
    """

    image: Tensor
    label: int
    activation: float
    levels: tuple[Level, ...]


@torch.no_grad()
def tree(network: Network, image: Tensor, label: int | None = None, branches: int | None = None) -> AgreementTree:
    """Follow the strongest shares from a class down to the primary capsules.

    Args:
        network: trained.
        image: (C, H, W), as the network takes it.
        label: the class; None takes the most active one.
        branches: children shown of each capsule; 8, 4 or 3 unless told, as the network has one, two or more layers.
    """
    if image.dim() != 3:
        raise ValueError(f"a tree is of one image, (channels, height, width), got shape {tuple(image.shape)}")
    if branches is not None:
        require_positive(branches=branches)
    return tree_seen(look(network, image.unsqueeze(0)), label, branches)


def tree_seen(seen: Look, label: int | None = None, branches: int | None = None) -> AgreementTree:
    """The same from a look at one image that was taken already."""
    chosen = chosen_classes(seen.capsules, label)
    branches = branches or BRANCHES.get(len(seen.evidence), 3)
    activation = of_parent(seen.capsules.activation, chosen, -1)
    top = seen.places(len(seen.evidence))[0][chosen]
    levels = [Level(chosen, activation, activation.new_zeros(1, 0), top)]
    shares = seen.shares(chosen)
    for depth in reversed(range(len(seen.evidence))):
        links = seen.evidence[depth].share[0][:, levels[-1].capsules]  # (I, M)
        levels.append(_level_below(links, shares[depth][0], seen.places(depth)[0], branches))
    return AgreementTree(seen.images[0], int(chosen), float(activation), tuple(levels))


def _level_below(links: Tensor, share: Tensor, places: Tensor, branches: int) -> Level:
    """The strongest children of the capsules above, each once, ordered by where they are."""
    strongest = links.abs().topk(min(branches, len(links)), dim=0).indices  # (branches, M)
    shown = torch.zeros_like(links, dtype=torch.bool).scatter_(0, strongest, True)
    kept = shown.any(dim=1).nonzero().flatten()
    kept = kept[places[kept, 0].argsort(stable=True)]
    return Level(kept, share[kept], torch.where(shown, links, 0)[kept], places[kept])
