"""Contributions of the children to their parents, for explanations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from paircaps.functional import ABSENT


class Evidence(NamedTuple):
    """Contributions of the children to the activations of their parents.

    Attributes:
        share: part of each parent's activation that comes from each child, (..., I, J); summed over I, the activation.
        coupling: weight with which the routing sent each child to each parent, (..., I, J); None if it has none.
        weighted: votes times their weights in the routing, (..., I, J, K).
        metric: weight of each dimension in the product of two such votes, (..., J, K).
    """

    share: Tensor
    coupling: Tensor | None
    weighted: Tensor
    metric: Tensor

    def pairs(self, parent: Tensor) -> Tensor:
        """Agreement of each two children on one parent per image: the weighted product of their votes.

        With FM agreement the pairs i < k add up to the activation, but for its linear part if it has one; with dynamic
        routing all pairs do, each child with itself included. EM routing has no such products; there it is the
        similarity of the votes, each weighted by the child's part in the parent.

        Args:
            parent: index of the parent in each image, of the leading shape (...).

        Returns:
            (..., I, I), symmetric.
        """
        votes = of_parent(self.weighted, parent, -2)
        metric = of_parent(self.metric, parent, -2)
        return torch.einsum("...ik,...k,...hk->...ih", votes, metric, votes)


def evidence_of_length(weighted: Tensor, activation: Tensor, coupling: Tensor | None = None) -> Evidence:
    """Evidence of a routing whose parents are sums s of weighted votes, as active as a function of ‖s‖ says.

    The part of a pair (i, k) in ‖s‖² is the product of its two weighted votes, i = k included, and so is its part in
    the activation.

    Args:
        weighted: votes times their weights, (..., I, J, K); s is their sum over the children.
        activation: activations of the parents, (..., J).
        coupling: weight with which each child was sent to each parent, (..., I, J), or None.
    """
    s = weighted.sum(dim=-3)
    length = torch.linalg.vector_norm(s, dim=-1).clamp_min(ABSENT)
    metric = (activation / length.square()).unsqueeze(-1).expand_as(s)
    return Evidence(torch.einsum("...ijk,...jk,...jk->...ij", weighted, metric, s), coupling, weighted, metric)


def of_parent(values: Tensor, parent: Tensor, axis: int) -> Tensor:
    """Values of one parent per image.

    Args:
        values: values of all parents, (..., J, ...).
        parent: index of the parent in each image, (...).
        axis: axis of the parents in ``values``, counted from the end and negative.

    Returns:
        the values without the axis of the parents.
    """
    index = parent.reshape(parent.shape + (1,) * (values.dim() - parent.dim()))
    shape = list(values.shape)
    shape[axis] = 1
    return values.gather(axis, index.expand(shape)).squeeze(axis)
