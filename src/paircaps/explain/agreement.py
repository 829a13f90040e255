"""Where in an image the agreement on a class comes from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.checks import require_not_negative
from paircaps.explain.trace import Look, chosen_classes, look
from paircaps.network import Network
from paircaps.routing.evidence import of_parent

PAIRS = 12


@dataclass(frozen=True)
class Agreement:
    """The activation of one class, taken apart.

    Args:
        images: as the network sees them, (B, C, H, W) in 0..1.
        label: the class, (B,).
        activation: of the class, (B,).
        shares: of every child capsule of the last layer in that activation, (B, I). They add up to it.
        map: the same by position in the image, (B, rows, columns). They add up to it too.
        coupling: of each position with the class, (B, rows, columns), the mean over its capsules; None for routings
            that do not divide a child among the parents.
        rows: middles of the positions from top to bottom, in pixels, (rows,).
        columns: middles of the positions from left to right, in pixels, (columns,).
        pairs: the children that agree most, (B, P, 2), the strongest pair first.
        strength: of each pair, (B, P).
        places: where each child of the last layer is in the image, x and y in pixels, (B, I, 2).
    """

    images: Tensor
    label: Tensor
    activation: Tensor
    shares: Tensor
    map: Tensor
    coupling: Tensor | None
    rows: Tensor
    columns: Tensor
    pairs: Tensor
    strength: Tensor
    places: Tensor


@torch.no_grad()
def agreement(network: Network, images: Tensor, label: Tensor | int | None = None, pairs: int = PAIRS) -> Agreement:
    """See where the agreement on a class comes from.

    Args:
        network: trained.
        images: (B, C, H, W), as the network takes them.
        label: the class to look at, (B,), or one for all; None takes the most active one.
        pairs: how many of the strongest pairs; with none, those of all children are not computed.
    """
    return agreement_seen(look(network, images), label, pairs)


def agreement_seen(seen: Look, label: Tensor | int | None = None, pairs: int = PAIRS) -> Agreement:
    """The same from a look that was taken already."""
    require_not_negative(pairs=pairs)
    label = chosen_classes(seen.capsules, label)
    shares, coupling = seen.shares(label), seen.coupling(label)
    agreeing = seen.evidence[-1].pairs(label) if pairs else seen.images.new_zeros(len(label), 0, 0)
    strongest, strength = strongest_pairs(agreeing, pairs)
    x, y = seen.on_grid(seen.centres.T).unbind(0)
    return Agreement(
        seen.images,
        label,
        of_parent(seen.capsules.activation, label, -1),
        shares[-1],
        seen.on_grid(shares[0]).sum(-1),
        None if coupling is None else seen.on_grid(coupling).mean(-1),
        y[:, 0, 0].to(seen.images.device),
        x[0, :, 0].to(seen.images.device),
        strongest,
        strength,
        seen.places(len(seen.evidence) - 1),
    )


def strongest_pairs(agreeing: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Pairs of different children that agree most.

    Args:
        agreeing: how much each two agree, (B, I, I).
        count: how many; fewer if there are not so many.

    Returns:
        their indices, (B, P, 2), the strongest first, and how much they agree, (B, P).
    """
    children = agreeing.shape[-1]
    first, second = torch.triu_indices(children, children, 1, device=agreeing.device)
    strength, order = agreeing[:, first, second].topk(min(count, len(first)))
    return torch.stack([first[order], second[order]], -1), strength
