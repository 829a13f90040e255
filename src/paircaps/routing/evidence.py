"""What each child contributed to each parent, for people who want to see it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Evidence(NamedTuple):
    """Where the activations of parents come from.

    Attributes:
        share: of each child in the activation of each parent, (..., I, J). Over the children they add up to it.
        coupling: how the routing divided each child among the parents, (..., I, J); None where it does not.
        weighted: votes with all that they are multiplied by before they meet, (..., I, J, K).
        metric: what a product of two such votes counts in each dimension, (..., J, K).
    """

    share: Tensor
    coupling: Tensor | None
    weighted: Tensor
    metric: Tensor

    def pairs(self, parent: Tensor) -> Tensor:
        """How much each two children agree on one parent an image: the product of their votes, as they count.

        With FM agreement the pairs add up to the activation, with dynamic routing those and each child with itself. EM
        routing knows no such products; there it is the likeness of votes, each weighed by its part in the parent.

        Args:
            parent: its index, of the leading shape (...).

        Returns:
            (..., I, I), symmetric.
        """
        votes = of_parent(self.weighted, parent, -2)
        metric = of_parent(self.metric, parent, -2)
        return torch.einsum("...ik,...k,...hk->...ih", votes, metric, votes)


def of_parent(values: Tensor, parent: Tensor, axis: int) -> Tensor:
    """The values of one parent an image: (..., J, ...) with J at a negative axis, and (...) to the same without J."""
    index = parent.reshape(parent.shape + (1,) * (values.dim() - parent.dim()))
    shape = list(values.shape)
    shape[axis] = 1
    return values.gather(axis, index.expand(shape)).squeeze(axis)
