"""No routing and no squash: each parent is the sum of its votes, so that the layer is a dense layer."""

from __future__ import annotations

import torch
from torch import Tensor

from paircaps._utils.precision import full_precision, in_full_precision
from paircaps.functional import Capsules
from paircaps.routing.base import Routing, VoteNeeds
from paircaps.routing.evidence import Evidence, evidence_of_length


@in_full_precision
def sum_of_votes(total: Tensor) -> Capsules:
    """Parents that are the sums of their votes, as active as they are long.

    Args:
        total: Σû over the children, (..., J, K).

    Returns:
        Capsules whose ``s`` and ``pose`` are both Σû, (..., J, K), and whose activation is ‖Σû‖, (..., J).
    """
    return Capsules(total, total, torch.linalg.vector_norm(total, dim=-1))


class SumOfVotes(Routing):
    """No routing and no squash: each parent is the sum of its votes, ``"sum"`` by name.

    With vote matrices of each child's own this is a dense layer from all numbers of all children to all numbers of all
    parents. The network ``hitnet`` is published with it, which bounds its class capsules itself.

    It needs only the sum of the votes, so it streams at no cost. Activations of the children are not read.

    Args:
        out_capsules: J, the number of parents.
    """

    @property
    def needs(self) -> VoteNeeds:
        """The sum of the votes."""
        return VoteNeeds.TOTAL

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """Sum of dense votes."""
        return self.agree_on_total(votes.sum(dim=-3), votes.shape[-3])

    def agree_on_total(self, total: Tensor, children: int) -> Capsules:
        """The sum itself."""
        return sum_of_votes(total)

    @torch.no_grad()
    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: with s the sum, its part in ‖s‖² is ⟨û_i, s⟩; there is no coupling."""
        votes = votes.to(full_precision(votes.dtype))
        return evidence_of_length(votes, sum_of_votes(votes.sum(dim=-3)).activation)
