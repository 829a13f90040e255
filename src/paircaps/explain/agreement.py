"""Agreement on a class by position in the image: a map of shares, and the pairs of capsules that agree most."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.checks import require_not_negative
from paircaps.explain.trace import Trace, choose_classes, trace
from paircaps.network import Network
from paircaps.routing.evidence import of_parent

PAIRS = 12
"""Strongest pairs that are returned unless another number is given."""


@dataclass(frozen=True)
class Agreement:
    """Activation of one class, divided among child capsules and positions.

    Args:
        images: images as the network sees them, (B, C, H, W) in 0..1.
        label: the class of each image that was examined, (B,).
        activation: activation of that class, (B,).
        shares: share of every child capsule of the last layer in the activation, (B, I); they add up to it.
        map: share of every position in the activation, (B, rows, columns); they add up to it too.
        coupling: coupling of each position with the class, the mean over its capsules, (B, rows, columns); None for
            routings that do not divide a child among the parents.
        rows: centres of the positions from top to bottom, in pixels, (rows,).
        columns: centres of the positions from left to right, in pixels, (columns,).
        pairs: indices of the children that agree most, (B, P, 2), the strongest pair first.
        strength: agreement of each pair, (B, P).
        places: position of each child of the last layer in the image, x and y in pixels, (B, I, 2).
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
    """Divide the agreement on a class among child capsules and positions.

    >>> from paircaps.network import Network, NetworkSpec, Preparation
    >>> preparation = Preparation(size=(28, 28), crop=(28, 28))
    >>> options = {"num_classes": 2}
    >>> spec = NetworkSpec("resnet-caps-small", options, ("cat", "dog"), preparation)
    >>> network = Network(spec)  # or a trained one: paircaps.load(folder)
    >>> shares = agreement(network, torch.rand(3, 1, 28, 28))
    >>> torch.allclose(shares.map.sum(dim=(1, 2)), shares.activation, atol=1e-4)
    True

    Args:
        network: a trained network.
        images: images as the network takes them, (B, C, H, W).
        label: class of each image, (B,), or one class for all; None takes the most active one.
        pairs: number of strongest pairs; with 0, the agreement of all pairs is not computed.

    Raises:
        PaircapsError: if the network has no capsules, or its routing does not report what children contributed.
    """
    return agreement_from_trace(trace(network, images), label, pairs)


def agreement_from_trace(traced: Trace, label: Tensor | int | None = None, pairs: int = PAIRS) -> Agreement:
    """Like :func:`agreement`, from a trace that is there already."""
    require_not_negative(pairs=pairs)
    label = choose_classes(traced.capsules, label)
    shares, coupling = traced.shares(label), traced.coupling(label)
    agreeing = traced.evidence[-1].pairs(label) if pairs else traced.images.new_zeros(len(label), 0, 0)
    strongest, strength = strongest_pairs(agreeing, pairs)
    x, y = traced.on_grid(traced.centres.T).unbind(0)
    return Agreement(
        traced.images,
        label,
        of_parent(traced.capsules.activation, label, -1),
        shares[-1],
        traced.on_grid(shares[0]).sum(-1),
        None if coupling is None else traced.on_grid(coupling).mean(-1),
        y[:, 0, 0].to(traced.images.device),
        x[0, :, 0].to(traced.images.device),
        strongest,
        strength,
        traced.places(len(traced.evidence) - 1),
    )


def strongest_pairs(agreeing: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the pairs of different children that agree most.

    Args:
        agreeing: agreement of each two children, (B, I, I).
        count: number of pairs; all of them if there are fewer.

    Returns:
        indices of the children, (B, P, 2), the strongest pair first, and the agreement of each pair, (B, P).
    """
    children = agreeing.shape[-1]
    first, second = torch.triu_indices(children, children, 1, device=agreeing.device)
    strength, order = agreeing[:, first, second].topk(min(count, len(first)))
    return torch.stack([first[order], second[order]], -1), strength
